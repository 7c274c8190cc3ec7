"""mmengine and mmcv: console log, after the dump of the environment and of the configuration.

2023/06/05 20:10:13 - mmengine - INFO - Epoch(train)   [1][1/6]  lr: 4.0000e-08  eta: 4:59:11  time: 9.9787  loss: 0.4219
2023/06/05 20:10:13 - mmengine - INFO - Iter(train) [   50/40000]  lr: 9.9e-03  eta: 4:59:11  loss: 0.4219
2021-06-05 20:10:13,123 - mmdet - INFO - Epoch [1][50/7330]\tlr: 1.978e-03, eta: 1 day, 1:44:17, time: 0.527, loss: 1.5012
2023/06/05 20:17:40 - mmengine - INFO - Epoch(val) [10][6/6]    coco/AP: 0.000891  data_time: 1.4  time: 1.5
"""

from __future__ import annotations

from typing import ClassVar

from trainproof.readers.console.engine import ConsoleReader
from trainproof.readers.console.line import Line

_LOG = r"[\d/-]{10} [\d:,.]{8,15} - \w+ - INFO - (?:Exp name: [^\n,]{1,200}, )?"


class MMLogReader(ConsoleReader):
    name = "mmengine-log"
    description = "mmengine, mmcv (mmdetection, mmsegmentation, ...): console log"
    lines = (
        Line("Epoch", _LOG + r"Epoch(?:\(train\))? +\[(?P<epoch>\d+)\]\[ *(?P<batch>\d+)/(?P<batches>\d+)\]"),
        Line("Iter", _LOG + r"Iter(?:\(train\))? *\[ *(?P<step>\d+)/(?P<of>\d+)\]"),
        Line("(val)", _LOG + r"(?:Epoch|Iter)\(val\) *\[[^\n]{0,40}\]", prefix="eval_", sure=False),
    )
    aliases: ClassVar = {"eta": ""}

    def metric(self, line: Line, name: str) -> str:
        return "" if line.prefix and name in ("time", "data_time", "memory") else super().metric(line, name)
