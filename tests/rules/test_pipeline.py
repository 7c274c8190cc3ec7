"""Family TP92: stalls, spikes after them, cliffs without them, first steps, warm-ups, epochs, modes and queues."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.rules.helpers import healthy_frame, learning_rate, make_frame, only, run_rule, says_so_live, severities
from trainproof.api import judge
from trainproof.frame import Frame
from trainproof.rules.registry import CannotTell
from trainproof.verdict import RunReport, Severity, Verdict

WARN, INFO = Severity.WARN, Severity.INFO
SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "gallery" / "drafter.py"


def drafter_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("drafter", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    folder = tmp_path_factory.mktemp("drafter")
    drafter_script().main(folder)
    return judge(folder / "metrics.jsonl").runs[0]


class TestDrafter:
    """The whole story of one run, told by its log."""

    def test_each_thing_that_was_wrong_is_told_by_itself(self, drafter: RunReport) -> None:
        told = {f.rule for f in drafter.findings if f.severity is WARN}
        assert told == {"TP921", "TP923", "TP924", "TP925", "TP926", "TP927", "TP928"}
        assert drafter.verdict is Verdict.WARN

    @pytest.mark.parametrize(
        ("rule", "said"),
        [
            ("TP921", "2000 to 2027 with 167 s between, 4001 to 4019 with 112 s between"),
            ("TP922", "to 13 at step 2029"),
            ("TP922", "to 7.2 at step 4021"),
            ("TP922", "speaks against damaged weights, which `trainproof checkpoint`"),
            ("TP923", "rules out pauses of the machine"),
            ("TP924", "0.0006 at step 0 and 6.43e-07 at step 2"),
            ("TP925", "8.1 x the declared warm-up of 463 steps"),
            ("TP926", "epoch 0.4001 at step 4635"),
            ("TP926", "the logged one is the share of the whole run"),
            ("TP927", "(51%)"),
            ("TP927", "batches made of one kind of data"),
            ("TP928", "a slow consumer's queue is longer, not shorter"),
        ],
    )
    def test_with_its_numbers(self, drafter: RunReport, rule: str, said: str) -> None:
        assert any(said in f.message for f in drafter.findings if f.rule == rule)

    def test_what_the_modes_explain_is_told_with_them(self, drafter: RunReport) -> None:
        related = {f.rule: {r.rule for r in f.related} for f in drafter.findings}
        assert (related["TP927"], related["TP921"], related["TP924"]) == ({"TP201"}, {"TP002"}, {"TP302"})


def paused(pauses: dict[int, tuple[int, float]], n: int = 600, **more: Any) -> Frame:
    """A run of one step and ten seconds a record, with pauses: record -> (steps lost, seconds)."""
    steps, clock = np.ones(n), 10 * np.random.default_rng(0).lognormal(0, 0.05, n)
    for at, (lost, seconds) in pauses.items():
        steps[at], clock[at] = lost + 1, seconds
    series = {"loss": np.ones(n), "time": np.cumsum(clock), **more}
    return make_frame(series, steps=np.cumsum(steps).astype(int).tolist())


class TestGaps:
    def test_two_pauses_at_multiples_of_one_interval_warn_at_the_second(self) -> None:
        seen = says_so_live("TP921", paused({200: (26, 167.0), 375: (18, 112.0)}))
        assert seen.severity is WARN
        assert "multiples of 200" in seen.message

    def test_pauses_of_the_clock_alone_are_enough(self) -> None:
        assert severities("TP921", paused({200: (0, 167.0), 400: (0, 112.0)})) == [WARN]

    def test_pauses_elsewhere_and_irregular_clocks_are_not_it(self) -> None:
        assert run_rule("TP921", paused({170: (0, 167.0), 411: (0, 112.0), 503: (0, 100.0)})) == []
        with pytest.raises(CannotTell, match="irregular"):
            run_rule("TP921", paused(dict.fromkeys(range(20, 600, 9), (0, 100.0))))

    def test_a_spike_after_a_pause_that_is_back_is_told_only(self) -> None:
        loss = np.random.default_rng(0).lognormal(0, 0.1, 600)
        loss[202] = 13.0
        assert severities("TP922", paused({200: (0, 167.0)}, loss=loss)) == [INFO]
        assert run_rule("TP922", paused({300: (0, 167.0)}, loss=loss)) == []

    def test_a_cliff_with_an_even_clock_warns_and_one_after_a_pause_does_not(self) -> None:
        accuracy = 0.15 * np.random.default_rng(0).lognormal(0, 0.05, 600)
        accuracy[400:440] = 0.005
        seen = says_so_live("TP923", paused({}, accuracy=accuracy))
        assert (seen.severity, seen.flagged_step) == (WARN, 407)
        assert run_rule("TP923", paused({398: (0, 167.0)}, accuracy=accuracy)) == []
        with pytest.raises(CannotTell, match="no clock"):
            run_rule("TP923", make_frame(loss=np.ones(600), accuracy=accuracy))


class TestWarmup:
    def test_a_first_step_at_full_rate_warns(self) -> None:
        rate = np.append(6e-4, learning_rate(300, "constant", 6e-4, 0.5))
        steps = [0, *range(2, 302)]
        assert says_so_live("TP924", make_frame(lr=rate, steps=steps)).severity is WARN

    @pytest.mark.parametrize("schedule", ["linear", "cosine", "constant", "wsd"])
    def test_schedules_are_silent(self, schedule: str) -> None:
        frame = make_frame(lr=learning_rate(1000, schedule), facts={"warmup_ratio": 0.05, "total_steps": 1000})
        assert run_rule("TP924", frame) == run_rule("TP925", frame) == []

    def test_a_warmup_eight_times_as_long_warns(self) -> None:
        frame = make_frame(lr=learning_rate(1000, "linear", warmup=0.4), facts={"warmup_steps": 50})
        seen = says_so_live("TP925", frame)
        assert seen.severity is WARN
        assert "8 x the declared warm-up of 50 steps" in seen.message
        with pytest.raises(CannotTell, match="no warm-up declared"):
            run_rule("TP925", make_frame(lr=learning_rate(1000)))


class TestEpochs:
    FACTS = (("total_steps", 1000), ("epochs", 5))

    @staticmethod
    def run(epoch: Any, **facts: Any) -> Frame:
        return make_frame(loss=np.ones(1000), epoch=epoch, facts={**dict(TestEpochs.FACTS), **facts})

    @pytest.mark.parametrize(
        ("epoch", "facts", "reading"),
        [
            (np.arange(1, 1001) / 1000, {}, "share of the whole run"),
            (np.arange(1, 1001) / 200 * 8, {"accumulation": 8}, "micro-batches"),
            (np.arange(1, 1001) / 1600, {"world_size": 8}, "one process"),
        ],
    )
    def test_what_does_not_agree_warns_with_a_reading(self, epoch: Any, facts: Any, reading: str) -> None:
        seen = says_so_live("TP926", self.run(epoch, **facts))
        assert seen.severity is WARN
        assert reading in seen.message

    @pytest.mark.parametrize(
        "epoch",
        [
            np.arange(1, 1001) / 200,
            np.floor(np.arange(1000) / 200),
            np.ceil(np.arange(1, 1001) / 200),
            np.arange(1, 1001) / 240,
        ],
    )
    def test_what_agrees_is_silent(self, epoch: Any) -> None:
        assert run_rule("TP926", self.run(epoch)) == []

    def test_a_short_run_of_a_long_epoch_is_silent(self) -> None:
        assert run_rule("TP926", self.run(np.arange(1, 1001) / 40_000, epochs=1)) == []


class TestModes:
    @staticmethod
    def stretches(levels: Any, length: int, n: int = 400, noise: float = 0.03) -> Any:
        rng = np.random.default_rng(0)
        order = rng.choice(len(levels), n // length + 1)
        return np.repeat(np.asarray(levels)[order], length)[:n] * rng.lognormal(0, noise, n)

    @pytest.mark.parametrize("levels", [[0.6, 1.4], [0.6, 0.8, 1.4]])
    def test_stretches_of_one_kind_of_batch_warn(self, levels: Any) -> None:
        seen = says_so_live("TP927", make_frame(loss=self.stretches(levels, 10)), scheduled=True)
        assert seen.severity is WARN
        assert f"{len(levels)} separate levels" in seen.message

    def test_shuffled_kinds_are_told_only(self) -> None:
        assert only("TP927", make_frame(loss=self.stretches([0.6, 1.4], 1))).severity is INFO

    def test_one_change_of_level_is_another_rules(self) -> None:
        loss = np.append(np.full(100, 1.0), np.full(100, 2.0)) * np.random.default_rng(0).lognormal(0, 0.03, 200)
        assert run_rule("TP927", make_frame(loss=loss)) == []

    @pytest.mark.parametrize("sigma", [0.05, 0.2, 0.5])
    @pytest.mark.parametrize("heavy", [False, True])
    def test_healthy_noise_is_silent(self, sigma: float, heavy: bool) -> None:
        for seed in range(25):
            frame = healthy_frame(400, sigma, seed)
            if heavy:
                noise = np.exp(sigma * np.random.default_rng(seed).standard_t(3, 400))
                frame = make_frame(loss=2 * noise)
            assert run_rule("TP927", frame) == []

    def test_losses_printed_coarsely_are_silent(self) -> None:
        for seed in range(25):
            loss = np.round(1.6 * np.random.default_rng(seed).lognormal(0, 0.005, 400) * 128) / 128
            assert run_rule("TP927", make_frame(loss=loss)) == []


class TestQueues:
    def test_a_queue_that_runs_dry_warns(self) -> None:
        falling = 300 - 80 * np.arange(500) / 450 + np.random.default_rng(0).normal(0, 4, 500)
        seen = says_so_live("TP928", make_frame({"loss": np.ones(500), "prefetch_queue_size": falling}), scheduled=True)
        assert seen.severity is WARN
        assert "it is empty at step" in seen.message

    def test_uneven_queues_are_told(self) -> None:
        rng = np.random.default_rng(0)
        frame = {"loss": np.ones(500), "queue/0": rng.normal(300, 4, 500), "queue/1": rng.normal(140, 4, 500)}
        assert severities("TP928", make_frame(frame)) == [INFO]

    def test_queues_that_fill_or_stand_are_silent(self) -> None:
        filling = np.minimum(np.arange(500) * 3, 300) + np.random.default_rng(0).normal(0, 4, 500)
        assert run_rule("TP928", make_frame({"loss": np.ones(500), "queue_size": filling})) == []
        with pytest.raises(CannotTell, match="no queue"):
            run_rule("TP928", make_frame(loss=np.ones(500)))
