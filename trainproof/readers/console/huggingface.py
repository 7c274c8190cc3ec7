"""The dictionaries that the HF Trainer (and TRL) print, old versions with numbers, new ones with strings.

    {'loss': 2.3412, 'grad_norm': 1.25, 'learning_rate': 4.9e-05, 'epoch': 0.02}
    {'eval_loss': '2.1', 'eval_runtime': '12.3', 'epoch': '1'}

No step is printed: records are numbered by their order, evaluations stand at the record before.
"""

from __future__ import annotations

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line

#: what progress bars and launchers may leave before the dictionary on its line
_BEFORE = r"(?:[^{}\n]{0,300}[\]>: \t|])?"
_REST = r"[^{}\n]*"


class HFConsoleReader(ConsoleReader):
    name = "hf-console"
    description = "Hugging Face Trainer, TRL: printed records"
    lines = (
        Line("'loss': ", _BEFORE + r"\{(?=[^{}\n]*'loss': )(?![^{}\n]*'train_runtime': )", _REST, r"\}", counted=True),
        Line("'eval_", _BEFORE + r"\{(?='eval_|[^{}\n]{0,200}'eval_)(?![^{}\n]*'loss': )", _REST, r"\}"),
    )
    end_mark = b"'train_runtime': "
