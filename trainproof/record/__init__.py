"""Recording a training: data order, numbers, hashes, and checkpoints from which a step can be done again."""
