"""The tables of known loggers: which reader claims them, and what the format means."""

from __future__ import annotations

import pytest

from tests.readers.known import curve, run, runs

LIGHTNING = """epoch,step,train_loss_epoch,train_loss_step,val_loss,hp_metric
,0,,,,-1.0
0,49,,2.5,,
0,99,,2.25,,
0,99,,,1.75,
0,99,2.375,,,
1,149,,2.0,,
1,199,,1.5,,
1,199,,,1.25,
1,199,1.75,,,
"""


def test_lightning_rows_carry_one_set_of_metrics_each() -> None:
    frame = run(LIGHTNING)
    assert frame.source.format == "lightning"
    assert curve(frame, "loss") == [(49, 2.5), (99, 2.25), (149, 2.0), (199, 1.5)]
    assert curve(frame, "eval/loss") == [(99, 1.75), (199, 1.25)]
    assert curve(frame, "train_loss_epoch") == [(99, 2.375), (199, 1.75)]
    assert frame["eval/loss"].line.tolist() == [5, 9]
    assert "hp_metric" not in frame  # -1 is the placeholder of a metric that was never given
    assert run(LIGHTNING.replace("-1.0", "0.5"))["hp_metric"].value.tolist() == [0.5]


def test_lightning_with_one_kind_of_rows_is_known_by_its_sorted_columns() -> None:
    table = "epoch,loss,step\r\n0,2.0,49\r\n0,1.5,99\r\n"
    assert run(table).source.format == "lightning"
    assert run("step,epoch,loss\n49,0,2.0\n99,0,1.5\n").source.format == "csv"


KERAS = """epoch,accuracy,learning_rate,loss,val_accuracy,val_loss
0,0.5,0.0010000000474974513,0.75,0.5,0.6875
1,0.625,0.0010000000474974513,0.5,0.75,0.5625
2,0.75,0.0005000000237487257,0.25,NA,NA
"""


def test_keras_counts_epochs_and_says_na_for_what_was_not_computed() -> None:
    frame = run(KERAS.replace("\n", "\r\n"))
    assert (frame.source.format, frame.objective) == ("keras", "classification")
    assert curve(frame, "loss") == [(0, 0.75), (1, 0.5), (2, 0.25)]
    assert curve(frame, "eval/loss") == [(0, 0.6875), (1, 0.5625)]
    assert frame["lr"].value[2] == 0.0005000000237487257


def test_keras_appended_to_the_same_file_is_two_runs() -> None:
    rows = "".join(f"{i},0.5,{rate},{1000 * rate / (i + 1)},0.5,0.5\n" for rate in (0.001, 0.002) for i in range(8))
    first, second = runs(KERAS.splitlines(keepends=True)[0] + rows)
    assert (first.source.name, second.source.name) == ("run 1", "run 2")
    assert [set(frame["lr"].value) for frame in (first, second)] == [{0.001}, {0.002}]


def test_a_table_of_epochs_in_another_order_is_not_keras() -> None:
    assert run("epoch,loss,accuracy\n0,0.75,0.5\n1,0.5,0.625\n").source.format == "csv"


YOLO5 = """               epoch,      train/box_loss,      train/cls_loss,     metrics/mAP_0.5,        val/box_loss,               x/lr0
                   0,              0.1125,              0.0625,                0.25,                0.11,               0.07
                   1,                 0.1,                0.05,              0.3125,                 0.1,               0.04
"""
YOLO8 = """epoch,time,train/box_loss,train/cls_loss,metrics/mAP50(B),val/box_loss,lr/pg0,lr/pg1
1,11.5,1.5,3.5,0.25,1.25,1e-05,1e-05
2,22.5,1.25,3.25,0.5,1.125,2e-05,2e-05"""


def test_ultralytics_losses_are_parts_and_time_counts_from_the_start() -> None:
    frame = run(YOLO8)
    assert frame.source.format == "ultralytics"
    assert "loss" not in frame
    assert curve(frame, "loss/box") == [(1, 1.5), (2, 1.25)]
    assert curve(frame, "loss/cls") == [(1, 3.5), (2, 3.25)]
    assert curve(frame, "eval/loss/box") == [(1, 1.25), (2, 1.125)]
    assert curve(frame, "eval/mAP50(B)") == [(1, 0.25), (2, 0.5)]
    assert curve(frame, "time") == [(1, 11.5), (2, 22.5)]
    assert (curve(frame, "lr"), curve(frame, "lr/1")) == ([(1, 1e-05), (2, 2e-05)], [(1, 1e-05), (2, 2e-05)])


def test_ultralytics_version_5_pads_its_cells() -> None:
    frame = run(YOLO5)
    assert frame.source.format == "ultralytics"
    assert curve(frame, "loss/box") == [(0, 0.1125), (1, 0.1)]
    assert curve(frame, "lr") == [(0, 0.07), (1, 0.04)]


SB3 = """train/loss,time/total_timesteps,rollout/ep_rew_mean,train/explained_variance,time/fps
,2048,12.5,,900
0.25,4096,20.0,nan,850
-0.125,6144,31.5,0.5,840
"""


def test_stable_baselines3_counts_timesteps_and_is_judged_by_its_reward() -> None:
    frame = run(SB3)
    assert (frame.source.format, frame.objective) == ("sb3", "rl")
    assert curve(frame, "reward") == [(2048, 12.5), (4096, 20.0), (6144, 31.5)]
    assert curve(frame, "loss") == [(4096, 0.25), (6144, -0.125)]


def test_the_baselines_before_it() -> None:
    frame = run("TimeElapsed,EpRewMean,loss_vf_loss,TimestepsSoFar\n2.5,0.5,0.0625,1024\n4.5,0.75,0.03125,2048\n")
    assert (frame.source.format, frame.objective) == ("sb3", "rl")
    assert curve(frame, "reward") == [(1024, 0.5), (2048, 0.75)]
    assert curve(frame, "time") == [(1024, 2.5), (2048, 4.5)]


@pytest.mark.parametrize("more", ["", ",is_success"])
def test_monitor_files_of_episodes(more: str) -> None:
    end = ",1" if more else ""
    text = f'#{{"t_start": 1614710446.77, "env_id": "X"}}\nr,l,t{more}\n-415.5,94,0.5{end}\n12.25,100,1.5{end}\n'
    frame = run(text, "0.monitor.csv")
    assert (frame.source.format, frame.objective) == ("monitor", "rl")
    assert curve(frame, "reward") == [(1, -415.5), (2, 12.25)]
    assert frame["reward"].line.tolist() == [3, 4]
    assert curve(frame, "episode_length") == [(1, 94.0), (2, 100.0)]
    assert curve(frame, "time") == [(1, 0.5), (2, 1.5)]
    assert ("is_success" in frame) is bool(more)


ALGOPERF = """global_step,grad_norm,loss,train/loss,validation/loss,accumulated_submission_time,preemption_count
0,0.5,6.875,,,,
1,,,6.875,6.75,76.5,0
100,0.25,5.5,,,,
1000,,,4.5,4.75,500.5,1
"""


def test_algoperf_writes_nan_as_blank() -> None:
    frame = run(ALGOPERF)
    assert frame.source.format == "algoperf"
    assert curve(frame, "loss") == [(0, 6.875), (100, 5.5)]
    assert curve(frame, "train/loss") == [(1, 6.875), (1000, 4.5)]
    assert curve(frame, "eval/loss") == [(1, 6.75), (1000, 4.75)]
    assert frame.masked == {"loss"}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("run-big-tag-train_loss.csv", "loss"),
        ("logs/run-.-tag-eval_loss.csv.gz", "eval/loss"),
        ("run-walker-v3_train_return.csv", "reward"),
        ("walker_val_loss.csv", "eval/loss"),
        ("run-big-tag-walker_return.csv", "walker_return"),  # the tag is marked, so it is the whole name
        ("accuracy.csv", "accuracy"),
    ],
)
def test_scalars_downloaded_from_tensorboard_are_called_by_their_file(path: str, name: str) -> None:
    frame = run("Wall time,Step,Value\n1696394223.5,0,2.5\n1696394797.5,8000,1.5\n", path)
    assert frame.source.format == "tensorboard-csv"
    assert curve(frame, name) == [(0, 2.5), (8000, 1.5)]
    assert frame["time"].value.tolist() == [1696394223.5, 1696394797.5]


def test_flair_tables() -> None:
    header = "EPOCH\tTIMESTAMP\tBAD_EPOCHS\tLEARNING_RATE\tTRAIN_LOSS\tDEV_LOSS\tDEV_F1\n"
    frame = run(header + "1\t13:54:52\t0\t0.1000\t0.5\t0.25\t0.75\n2\t13:58:01\t0\t0.1000\t0.25\t_\t0.8125\n")
    assert frame.source.format == "flair-tsv"
    assert curve(frame, "loss") == [(1, 0.5), (2, 0.25)]
    assert curve(frame, "eval/loss") == [(1, 0.25)]
    assert curve(frame, "eval/f1") == [(1, 0.75), (2, 0.8125)]
