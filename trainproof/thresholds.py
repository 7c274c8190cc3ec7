"""Every number that any rule uses, each with its unit and its source.

Sources: "measured" = `make calibrate` (docs/calibration.md says on what); "convention" = a limit that follows from how numbers are
printed or declared; anything else is named. A field can be overridden; an override is named in the report.
"""

from __future__ import annotations

import msgspec

from trainproof.errors import UsageError


class LogQualityThresholds(msgspec.Struct, frozen=True):
    """Family TP0."""

    # TP001 no-usable-records. Source: no statistic of the other families needs fewer.
    usable_records: int = 8
    curve_records: int = 3  # of the longest series: fewer are points, no curve, and the run is SKIP

    # TP002 step-gap. Source: convention (a logger that lost data goes on at its old interval).
    gap_times: float = 5.0  # usual intervals
    gap_history: int = 50  # intervals before the gap that say what is usual
    gap_regular: float = 0.8  # share of them that are the usual one
    gap_back: int = 3  # intervals after the gap that are the usual one again
    gap_many: int = 5  # gaps from which on they are how this run logs

    # TP003 step-overlap. Source: convention (a crash repeats the steps since the last checkpoint).
    overlap_scales: float = 5.0  # scales S between the loss before and after the seam (as TP201)
    overlap_seam: int = 5  # records whose median is compared
    overlap_counter: float = 0.1  # of its value before: a counter that fell below it began anew

    # TP004 duplicate-records. Source: convention (one line in ten is more than a repeated last line).
    duplicates_min_records: int = 20
    duplicates_share: float = 0.10  # of all records

    # TP005 metric-missing-or-placeholder. Source: convention.
    missing_presence: float = 0.9  # of the records until it stopped
    missing_before: int = 20  # records with it
    missing_records: int = 10  # records without it
    placeholder_records: int = 50  # records with one and the same value


class NumericsThresholds(msgspec.Struct, frozen=True):
    """Family TP1."""

    # TP101 nonfinite-loss. Source: frameworks that skip a bad step by design lose one step in thousands.
    nonfinite_skipped_share: float = 0.001  # of the records so far

    # TP102 nonfinite-grad-norm. Source: a dynamic scaler starts at 2^16 and halves until it fits, 4 to 8 steps in a row; then it
    # probes every 2,000 steps (0.05 %).
    grad_streak: int = 3  # consecutive records, FAIL
    grad_start: int = 20  # records at the start in which a scaler may search
    grad_start_streak: int = 8  # consecutive records of that search, or of steps that a scaler skipped
    grad_share_records: int = 20  # records before a share means anything
    grad_share: float = 0.05  # of the records so far, FAIL
    grad_share_warn: float = 0.01
    grad_share_count: int = 3  # records behind that share, FAIL
    grad_share_count_warn: int = 2
    grad_moving: int = 10  # records before: a schedule that did not move in them says nothing by standing still
    grad_loss_ratio: float = 1.5  # loss over the median before it: it moves wrongly
    grad_loss_history: int = 20  # records of that median
    grad_scale: float = 1.0  # loss scale at or below which no scaler is at work

    # TP105 overflow-rate. Source: as TP102.
    overflow_grace: int = 50  # steps
    overflow_window: int = 200  # steps
    overflow_min_steps: int = 50  # steps after the grace
    overflow_share: float = 0.20  # of the steps in the window, FAIL
    overflow_share_warn: float = 0.05
    overflow_streak: int = 8  # consecutive skipped steps, FAIL

    # TP106 loss-scale-collapse. Source: published notes of a 130-billion-parameter run (30 steps before the loss exploded).
    scale_grace: int = 50  # steps
    scale_low: float = 1.0  # loss scale
    scale_low_records: int = 5  # records at or below it
    scale_fall: float = 64.0  # times, within ...
    scale_fall_steps: int = 50  # ... steps
    scale_regain: float = 4.0  # times, within ...
    scale_regain_steps: int = 200  # ... steps

    # TP107 absurd-magnitude. Source: public float16 runs that printed 153,319, 344,093 and 12,545 for a cross-entropy.
    absurd_loss: float = 1e3  # nats
    absurd_times: float = 100.0  # the median of the 64 records before; and ln V
    absurd_grace: int = 20  # records
    absurd_records: int = 2  # records, FAIL

    # TP110 metric-went-blank. Source: public benchmark logs that leave NaN blank.
    blank_min_records: int = 10  # records of the companion
    blank_records: int = 5  # of them after the last value
    blank_presence: float = 0.9  # of those until then carried the loss
    blank_before: int = 3  # shared records until then (one is enough where the task metric is pinned)
    blank_growth: float = 10.0  # times, within ...
    blank_growth_records: int = 20  # ... records before the end: FAIL


class LossThresholds(msgspec.Struct, frozen=True):
    """Family TP2."""

    # TP203 loss-diverged. Source: measured (0 of 3,200 healthy noise runs; every diverged gallery run).
    diverged_widths: tuple[int, ...] = (5, 20, 80, 320)  # records a level is smoothed over
    diverged_min_records: int = 9
    diverged_se: float = 9.0  # standard errors of a median of that many records
    diverged_ratio: float = 1.5  # level over best level, FAIL
    diverged_ratio_warn: float = 1.2
    diverged_ratio_fast: float = 3.0  # ratio at which fewer records are enough
    diverged_regained: float = 0.25  # share of the improvement given back, FAIL
    diverged_regained_warn: float = 0.15
    diverged_records: int = 10  # records that the state has to hold, or the smoothing width if longer
    diverged_records_fast: int = 5
    diverged_evals: int = 3  # evaluations since the rise, before new lows of theirs excuse it
    diverged_apart: float = (
        10.0  # times the evaluation loss: less may be one and the same quantity (a diverged loss stops near ln V)
    )
    diverged_cycles: int = (
        80  # latest records: where batches come in cycles or stretches, some of these are at the best level still
    )
    diverged_returns: int = 3  # returns under the ratio, the last among those records: it swings, WARN
    diverged_noise_units: float = 5.0  # rise in units of the noise where no ratio exists (best level <= 0)
    # records after the FAIL for which a guardian waits whether a loss that no longer climbs comes back: of 54 spikes that did within 14
    # records, half failed and one was still away by then (tests/live/test_stopping.py)
    diverged_stop_records: int = 10

    # TP203, TP202: a rise that belongs to training. Source: reasoned; measured on made curves. In shape, long falls after a queue filled are
    # like those of runs that were lost in their first steps (6 to 12 and 5 to 14 % of the fall in its last half), so a metric has to tell.
    learned_points: int = 5  # of a task metric, before the rise and since
    learned_z: float = 3.0  # Mann-Kendall Z of its points since
    startup_first: int = 10  # records, within which the rise begins ...
    startup_begins: float = 0.02  # ... or within that share of all
    startup_peak: float = 0.20  # of the records, within which the loss is at its highest
    startup_records: int = 100  # records since that
    startup_gained: float = 0.05  # of the rise: what had been gained before it
    startup_fallen: float = 0.25  # of the rise, taken back since the peak
    startup_falling: float = 0.05  # of that fall, in the last half of the records since the peak
    startup_z: float = -3.0  # Mann-Kendall Z of that half
    startup_metric_points: int = 10  # of a task metric since the peak
    startup_metric: float = 0.5  # of the way from its level at the peak to its best

    # TP201 loss-spike-episode. Source: measured (median of 5, z 4 and 5: 0 of 97 public runs fire).
    spike_min_records: int = 25
    spike_z: float = 5.0  # scales S above the baseline M
    spike_log_z: float = (
        4.0  # scales S / M of the logarithm: at noise 0.5, 1.4 % of healthy runs pass the first test alone
    )
    spike_memory: int = 512  # records before it, in which rises ...
    spike_recurs_height: float = 0.65  # ... to that share of its height make it a loss of two levels (measured) ...
    spike_recurs_every: int = 128  # ... when there is one in so many records, and two at least
    spike_recurs_more: float = 0.1  # of that height: what rises by so much more is looked at again
    spike_ratio: float = 1.10  # times M
    recovered_ratio: float = 1.05  # times M: below it an episode is over
    fast_min_records: int = 32
    fast_z: float = 8.0  # a single record, with corroboration
    fast_ratio: float = 1.5
    fast_grad_ratio: float = 8.0  # gradient norm over its median of 64 records
    fast_scale_cut: float = 4.0  # loss scale before over after

    # TP202 spike-not-recovered. Source: published recoveries (200 steps at 176B parameters, 2,000 at 104B).
    unrecovered_min_records: int = 65
    unrecovered_warn_records: int = 40
    unrecovered_fail_records: int = 200
    unrecovered_fail_share: float = 0.02  # of the planned steps

    # TP204 plateau. Source: measured (3 of 3 plateau curves, 0 of 270 noise runs).
    plateau_min_records: int = 100
    plateau_records: int = 50  # window: at least this many records ...
    plateau_shares: tuple[float, ...] = (0.30, 0.50)  # ... and these shares of those so far, either of them
    plateau_change: float = 0.01  # |change| + 2 SE over the window, as a share of the level
    plateau_left: float = 0.20  # of the run still to come
    plateau_lr: float = 0.20  # of the peak learning rate still applied
    plateau_quanta: float = 2.0  # print quanta: noise above it hides the steps of a coarse print
    plateau_quantised: int = 10  # records averaged where the loss is coarsely printed
    plateau_long: int = 32768  # records: a longer loss is looked at through medians of 16 records
    plateau_condensed: int = 16

    # TP205 never-learned. Source: measured (3 of 3 lr-zero runs, 0 healthy).
    never_min_records: int = 30
    never_preference_records: int = 100  # of a preference loss (2 of 3 healthy gallery runs of 50 showed no fall yet)
    never_drop: float = 0.10  # of the first decile's median
    never_se: float = 2.0  # standard errors added to the drop
    never_z: float = -3.0  # Mann-Kendall Z of a clear fall
    never_at_once: float = (
        0.90  # drop below the first 3 records' median that tells of learning in the first tenth; reasoned
    )
    never_lr_zero_share: float = 0.20  # of the records with a learning rate of exactly 0: FAIL
    never_planned: float = 0.20  # of the planned steps: before, a base model that hardly moves looks the same
    never_chance: float = 0.001  # of ln(classes): how near the median of the last half is to it
    never_chance_each: float = 0.005  # ... and each record
    late_share: float = 0.10  # of the last step: a log whose first step is beyond it does not have the run's beginning
    late_intervals: float = 3.0  # ... and beyond as many of its records' distances
    never_evals: int = 5  # evaluations that stand at 0 with the loss

    # TP206 too-good-too-early. Source: reasoned.
    early_min_records: int = 20
    early_loss: float = 0.05  # nats, median of 5
    early_loss_scratch: float = 1.0  # nats, a language model from scratch
    early_first: float = 0.5  # nats: the run did not start there
    early_epoch: float = 1.0  # epochs
    early_share: float = 0.20  # of the planned steps where epochs are unknown

    # TP207 init-loss-off. Source: ln V is the loss of a uniform guess; 1.48 ln V is the highest start of a public healthy run.
    init_min_records: int = 3
    init_integer: float = 0.05  # distance of first loss / ln V from an integer
    init_integer_most: int = 8
    init_ratio: float = 2.0
    init_ratio_scratch: float = 0.5
    init_loss_unknown: float = 15.0  # nats, a language model of unknown vocabulary (e^15 = 3.3 million tokens)

    # TP208 loss-exactly-zero. Source: convention.
    zero_records: int = 2
    zero_before: float = 0.05  # nats, median of 5 before: a loss of 0 was not near
    zero_throughout: int = 10  # records from the start with no loss but 0

    # TP209 worse-than-uniform. Source: convention (ln V is a uniform guess), with 5 % for noise.
    uniform_ratio: float = 1.05
    uniform_records: int = 20
    uniform_grace: int = 50  # records
    uniform_grace_share: float = 0.05  # of the planned steps
    uniform_vocabulary: int = 1048576  # tokens, where it is unknown: more than the largest in use (XLM-V, 901,629)

    # TP210 level-shift. Source: measured (0 of 97 public runs; a 5 % shift found in 15 of 17).
    shift_min_records: int = 60
    shift_delta: float = 0.5  # scales S
    shift_lambda: float = 25.0  # scales S, summed
    shift_clip: float = 4.0  # scales S
    shift_side: int = 20  # records compared on either side
    shift_scales: float = 2.5
    shift_share: float = 0.03

    # TP211 component-domination. Source: reasoned.
    component_records: int = 50
    component_share: float = 0.99  # of the sum of the absolute parts
    component_before: float = 0.5  # share in the first tenth: it was not always so, WARN


class LearningRateThresholds(msgspec.Struct, frozen=True):
    """Family TP3."""

    # TP301 lr-zero. Source: a schedule that ends at 0 prints it once or twice.
    zero_records: int = 5  # consecutive
    zero_end: float = 0.02  # of the planned steps: left out at the end; of the records: a deliberate start at 0
    zero_share: float = 0.20  # of the planned steps, or of the records: FAIL
    zero_share_records: int = 20  # records before a share of them means anything
    zero_faded: float = 0.02  # of the peak: a rate that came down to it before 0 faded out
    zero_rounded: float = 10.0  # print quanta: a rate below may be printed as 0 next
    zero_rounded_levels: int = 3  # different rates printed before
    zero_learns_records: int = 20  # records at 0 over which a falling loss shows that the rate is not 0
    zero_learns_z: float = -3.0  # Mann-Kendall Z of a clear fall

    # TP302 warmup-missing. Source: convention (a first record within the warm-up shows less than its peak).
    warmup_first: float = 0.9  # of the peak at the first record
    warmup_seen: float = 0.5  # of the warm-up: the first record has to come before it

    # TP303 warmup-never-ends. Source: convention (one-cycle schedules rise for 30 % of a run).
    rising_peak: float = 0.9  # of the declared peak
    rising_share: float = 0.20  # of the planned steps, WARN
    rising_share_fail: float = 0.50
    rising_warmups: float = 3.0  # declared warm-ups

    # TP304 lr-constant-vs-declared. Source: convention (rates are printed with 3 digits or more).
    constant_range: float = 1e-3  # relative range
    constant_share: float = 0.20  # of the planned steps
    constant_moves: float = 0.05  # relative move of the declared schedule over the same steps
    constant_peak: float = 0.9  # of the highest rate so far: not the floor of a schedule

    # TP305 lr-exhausted-early. Source: a cosine to 0 is at 1 % of its peak with 6.4 % left, and at 0.1 % with 2 % left.
    exhausted_level: float = 0.01  # of the peak, FAIL
    exhausted_level_warn: float = 0.001
    exhausted_left: float = 0.25  # of the planned steps, FAIL
    exhausted_left_warn: float = 0.05
    exhausted_hold: float = 0.05  # of the planned steps that it has to last (a restart comes back sooner)
    exhausted_records: int = 5  # records that it has to last; enough where the rate is exactly 0
    exhausted_half: float = 0.5  # of the peak: where the descent is taken to begin
    exhausted_tenth: float = 0.1  # of the peak: where its second part begins
    exhausted_whole: float = 0.05  # distance of planned steps / step from an integer

    # TP306 batch-changes-without-rate. Source: convention.
    batch_times: float = 2.0  # batch size over the one before, or the inverse
    batch_rate: float = 0.10  # relative change of the learning rate


class GradientThresholds(msgspec.Struct, frozen=True):
    """Family TP4."""

    # TP401 grad-explosion. Source: measured (public supervised runs at most 3.1, reinforcement at most 6.0; single records 21).
    explosion_grace: int = 50  # records
    explosion_ratio: float = 20.0  # median of 5 over the median of the 64 before, FAIL
    explosion_ratio_warn: float = 5.0
    explosion_rl: float = 2.0  # factor of both for reinforcement learning
    explosion_se: float = 9.0  # standard errors of a median of 5, in log units (as TP203)
    explosion_start: float = 0.25  # of the median of the grace period: far below it, a ratio means little
    explosion_single: float = 10.0  # times, single records, INFO
    explosion_near: int = 10  # records within which a loss spike corroborates
    explosion_loss_z: float = 5.0  # scales S of that spike (as TP201)
    explosion_loss_ratio: float = 1.10
    explosion_end: int = 20  # records at the end whose median says whether the norm came back
    explosion_back: float = 2.0  # times the level before: it did, and is no FAIL

    # TP402 grad-zero-no-update. Source: convention.
    zero_records: int = 5  # consecutive, after norms that were not 0
    zero_evals: int = 3  # evaluations with one and the same loss: the weights do not change
    zero_start_records: int = 100  # from the start, where the column may be a placeholder, WARN
    zero_start_share: float = 0.20  # of the planned steps
    zero_start_drop: float = 0.05  # drop of the loss + 2 SE under this share of its level: it does not move
    zero_loss_z: float = -2.0  # Mann-Kendall Z above which the loss has no downward trend
    zero_rl_records: int = 20  # records before a share means anything
    zero_rl_share: float = 0.50  # of the records, where no KL is logged (a sixth is normal for small groups)

    # TP403 grad-vanishing. Source: 1e-7 is the default of Amazon SageMaker Debugger's rule VanishingGradient.
    vanishing_norm: float = 1e-7  # gradient norm
    vanishing_share: float = 1e-3  # of the reference
    vanishing_reference: tuple[int, int] = (20, 50)  # records whose median is the reference
    vanishing_records: int = 20

    # TP404 grad-drift. Source: published notes of a 175-billion-parameter run.
    drift_min_records: int = 100
    drift_growth: float = 3.0  # times over the last half
    drift_z: float = 3.0  # Mann-Kendall Z
    drift_loss_z: float = -2.0  # Z of the loss above which it is not falling
    drift_screen: float = 1.5  # times between the outer quarters of the window: spares the long way

    # TP405 clipping-always. Source: convention.
    clipping_min_records: int = 50
    clipping_share: float = 0.95  # of the records

    # TP406 grad-norm-stale. Source: convention (two batches do not agree in 6 digits three times).
    stale_digits: int = 6  # significant digits
    stale_records: int = 3  # consecutive
    stale_regular: float = 0.8  # of the runs of equal values as long as the usual one: filled forward


class EvaluationThresholds(msgspec.Struct, frozen=True):
    """Family TP5."""

    # A level left its best one by more than noise (TP501, TP502, TP504). Source: measured (tests/rules/test_evaluation.py has the cells).
    level_widths: tuple[int, ...] = (3, 5, 9, 17, 33, 65)  # evaluations a level is smoothed over
    noise_se: float = 6.0  # standard errors of such a level, for many evaluations ...
    noise_se_few: float = 6.0  # ... times 1 + this / n: few evaluations tell little of their noise
    few_evals: int = 60  # with no more than these, a climb since the best counts too:
    few_se: float = 4.0  # standard errors, together with
    few_z: float = 2.2  # the Mann-Kendall Z of 5 values in rising order

    # TP501 eval-rise, TP511 best-not-kept. Source: measured (5 %: no healthy public run; next healthy 1.7 %); the FAIL shares are those of TP203.
    rise_min_evals: int = 4
    rise_warn: float = 1.05  # level over best level
    rise_fail: float = 1.5
    rise_share_warn: float = 0.01  # of the improvement given back
    rise_share_fail: float = 0.25
    rise_units: float = 5.0  # units of noise, where the loss is not positive
    rise_gained: float = 0.25  # share of the improvement given back, where the loss is not positive
    erratic_evals: int = 10  # where the loss is not positive
    erratic_noise: float = 3.0  # noise of the eval loss in units of what training has gained
    erratic_apart: float = 5.0  # eval loss above training loss in the same units

    # A task metric still improves (TP501, TP502, TP504, TP506). Source: convention (the best is among the last 2 evaluations).
    improving_evals: int = 2  # its best is among so many latest evaluations ...
    improving_share: float = 0.15  # ... or among this share of them
    improving_se: float = 2.0  # standard errors of the median of the last 3

    # TP502 metric-regression. Source: public runs (mAP .31 to .05 and BLEU 29.8 to 0 are failures, mAP .257 to .209 is not).
    regression_least: float = 0.02  # on a scale of 1
    regression_warn: float = 0.10  # of the best
    regression_share_warn: float = 0.05  # of what had been gained since the start
    regression_fail: float = 0.50  # of either
    # The first evaluation was the best one by far. Source: reasoned (4 standard deviations below the lowest of 4, of normal noise).
    alone_evals: int = 4  # evaluations after the first
    alone_ranges: float = 2.0  # times what lies between the best and the worst of them

    # TP503 nonfinite-eval. Source: convention.
    nonfinite_metric_evals: int = 2  # last evaluations of a task metric
    nonfinite_metric_finite: int = 3  # finite ones before

    # TP504 eval-worse-than-baseline. Source: convention.
    baseline_evals: int = 3  # since the base
    baseline_margin: float = 0.02  # of the base

    # TP505 eval-frozen. Source: convention; the metric clauses from public runs (word error rate .8966 in 31 to 74 evaluations).
    frozen_warn: int = 3  # equal eval losses
    frozen_fail: int = 5
    frozen_digits: int = 6  # significant digits: fewer repeat by rounding
    frozen_fell: float = 0.01  # a loss that had fallen by this share and stands at its best: training had ended
    frozen_metric_warn: int = 5  # equal task metrics
    frozen_metric_long: int = 10
    frozen_samples: int = 200  # a share k / n of so few samples repeats by chance
    frozen_loss_fell: float = (
        0.02  # share by which the eval loss fell meanwhile: the model learns, the metric is at fault
    )

    # TP506 staircase-at-epochs. Source: measured (two public multi-epoch runs at 23 to 47 %; next healthy 5 %, z 5.3).
    staircase_least: int = 5  # records on either side
    staircase_most: int = 25
    staircase_drop: float = 0.10  # of the level before
    staircase_z: float = 6.0  # standard errors
    staircase_decline: float = 1.5  # times the decline inside the epoch
    staircase_lower: float = 0.5  # of that fall has to lead below where the epoch before began
    staircase_rate_cut: float = 0.7  # of the learning rate before: a schedule's own step

    # TP507 eval-too-good. Source: convention.
    good_loss: float = 0.02  # nats
    good_first: float = 0.5  # nats: the run did not start there
    equal_digits: float = 5e-5  # relative: 4 digits
    equal_evals: int = 3
    equal_moved: float = 0.01  # relative range of these evaluations

    # TP509 train-eval-scale-mismatch. Source: measured (healthy maximum 4.1, an accumulation of 16 gives 17).
    scale_min_evals: int = 2
    scale_ratio: float = 5.0
    scale_spread: float = 0.15  # standard deviation over the median
    scale_near: float = 0.15  # relative distance from the declared factor

    # TP508 loss-metric-disagree. Source: reasoned; a public run with an AUC of 0.5003 in 38 records.
    disagree_evals: int = 8
    disagree_change: float = 0.10  # of the first third, of loss and metric
    disagree_z: float = 2.5  # |Mann-Kendall Z| of both
    chance_records: int = 20
    chance_near: float = 0.01  # distance of the AUC from 0.5
    chance_fell: float = 0.05  # of the first loss
    idle_records: int = 200  # of an accuracy that has not moved. Source: measured (1 of 1 idle public run, 0 healthy)
    idle_level: float = 0.25  # an accuracy above it is no guess among many classes
    idle_change: float = 0.05  # of its level, with two standard errors


class DataOrderThresholds(msgspec.Struct, frozen=True):
    """Family TP6."""

    # TP601 periodic-loss. Source: measured (0 of 112 public runs; a public run with batches grouped by length has r = 0.96).
    period_min_records: int = 15
    period_window: int = 600  # latest records
    period_r: float = 0.6  # autocorrelation at the period
    period_r_few: float = 0.75  # the same under ...
    period_few: int = 60  # ... records
    period_se: float = 3.6  # standard errors 1 / sqrt(pairs) of it
    period_r_twice: float = 0.45  # at twice the period
    period_se_twice: float = 2.0  # standard errors of it
    period_trough: float = 0.1  # somewhere before the period
    period_repeats: int = 3  # periods
    period_explained: float = 0.5  # of the squares within periods, by their mean
    period_amplitude: float = 0.05  # range of the phase medians over the level, INFO
    period_amplitude_warn: float = 0.20
    period_amplitude_epoch: float = 0.10  # where the period is the epoch
    period_epoch: float = 0.10  # relative distance from the epoch's length

    # TP603 mixture-shift. Source: reasoned.
    mixture_min_records: int = 60
    mixture_share: float = 0.10  # difference of shares
    mixture_relative: float = 0.30  # of the first
    mixture_z: float = 4.0  # |Mann-Kendall Z|

    # TP604 repeated-sequence. Source: convention (two batches do not agree in 6 digits five times).
    repeat_min_records: int = 20
    repeat_records: int = 5  # consecutive
    repeat_digits: int = 6  # significant digits
    repeat_tried: int = 20  # latest earlier places of the last value
    order_min_records: int = 20  # records of an epoch
    order_most: int = 4096  # records of an epoch compared
    order_r: float = 0.9  # correlation of two epochs

    # TP605 tokens-per-step-drift. Source: reasoned.
    tokens_min_records: int = 60
    tokens_times: float = 1.5  # between the outer quarters
    tokens_z: float = 4.0  # |Mann-Kendall Z|
    tokens_levels: int = 8  # different rates of a planned ramp


class ResumeThresholds(msgspec.Struct, frozen=True):
    """Family TP7."""

    # TP701 resume-loss-jump, TP703 data-replayed. Source: measured (0 of 142 public resumes; a 10 % jump found in 96 %).
    jump_before: int = 40  # records
    jump_after: int = 20  # records
    jump_z: float = 4.0  # standard errors of the difference of the medians
    jump_share: float = 0.05  # of the level before
    jump_share_fail: float = 0.20
    jump_records: int = 200  # records within which it may come back

    # TP702 resume-lr-discontinuity. Source: convention; the rest reasoned.
    rate_low: float = 0.8  # times the rate before and its continuation
    rate_high: float = 1.25
    rate_least: float = 0.02  # of the peak: smaller jumps are rounding
    rate_tenth: float = 0.1  # of the rate before: only a new warm-up begins there, FAIL
    rate_rises: int = 3  # consecutive rises after it: a new warm-up, FAIL
    rebound_times: float = 1.5  # the record before
    rebound_below: float = 0.9  # of the peak: it had come down
    rebound_least: float = 0.10  # of the peak

    # TP703 data-replayed. Source: convention.
    counter_records: int = 4
    counter_usual: float = 2.0  # usual increments
    counter_least: float = 0.02  # epochs, or other units: an epoch may be printed with two decimals
    counter_near: int = 10  # records on either side that tell how many steps an epoch has
    counter_half: float = 0.5  # of its value before, where nothing resumed
    counter_falls: int = 3  # more falls are no counter's

    # TP708 restart-loop. Source: reasoned.
    loop_restarts: int = 3  # from the same step, WARN
    loop_restarts_fail: int = 5


class PreferenceThresholds(msgspec.Struct, frozen=True):
    """Family TP8."""

    # TP801 preference-init-off. Source: ln 2 = 0.693 is the loss of sigmoid DPO where policy and reference agree.
    init_near: float = 0.10  # relative distance from ln 2 of a first record of one step
    init_margin: float = 0.1  # |margin| of that record
    init_range: tuple[float, float] = (0.5, 0.7625)  # nats, a first record averaged over several steps
    init_margin_averaged: float = 1.0  # |margin| of that record
    init_steps: int = 50  # a first record after more steps shows training, not the start

    # TP802 chosen-reward-falling. Source: reasoned; published healthy runs end between -0.3 and -3.
    chosen_min_records: int = 30
    chosen_level: float = -1.0  # last chosen reward (scaled by beta), INFO
    chosen_level_warn: float = -5.0
    chosen_z: float = -3.0  # Mann-Kendall Z
    chosen_accuracy: float = 0.9  # median of the last 5

    # TP803 preference-saturated. Source: a public run with margins of 13 to 23 and a loss of 0 before half an epoch.
    saturated_min_records: int = 10
    saturated_loss: float = 1e-3  # nats, median of 5
    saturated_margin: float = 5.0  # median of 5, where no accuracy is logged
    saturated_epoch: float = 0.5  # epochs, or share of the planned steps

    # TP806 preference-worse-than-guess. Source: ln 2 is the sigmoid loss of two equal models; gallery runs dpo (0.59 to 0.71 throughout)
    # and dpo_hot (1.1 to 3).
    guess_ratio: float = 1.25  # of ln 2, median of 5
    guess_records: int = 20  # to the end

    # TP805 kl-out-of-range. Source: trl warns below -1; the rest reasoned.
    kl_min_records: int = 25
    kl_negative: float = -10.0  # nats, median of 5, FAIL
    kl_negative_warn: float = -1.0
    kl_grace: int = 50  # records
    kl_times: float = 10.0  # the median of the 64 records before, WARN
    kl_scales: float = 5.0  # scales S above that median
    kl_least: float = 0.5  # nats
    kl_high: float = 10.0  # nats, with a reward not above its start, FAIL
    kl_records: int = 20  # records that this has to hold

    # TP808 policy-step-too-large. Source: trl skips a batch above a ratio of 10; a clipped half is reasoned.
    clip_min_records: int = 25
    clip_share: float = 0.5  # of the tokens, median of 5
    clip_ratio: float = 10.0  # probability ratio, median of 5
    clip_records: int = 20

    # TP809 entropy-collapse. Source: reasoned.
    entropy_min_records: int = 30
    entropy_first: int = 10  # records whose median is the start
    entropy_share: float = 0.10  # of the start
    entropy_floor: float = 0.02  # nats, for a start above twice that
    entropy_times: float = 2.0  # the start, and above ...
    entropy_high: float = 1.0  # ... nats
    entropy_records: int = 20

    # TP810 reward-never-rises. Source: a public run of 10,657 episodes without a trend.
    still_min_records: int = 300
    still_gain: float = 0.25  # robust standard deviations of the rewards
    still_z: float = 1.96  # Mann-Kendall Z
    still_spread: float = 0.20  # of the level
    still_values: int = 5  # different values
    still_blocks: int = 20  # stretches of the run, none of which stands above the first by more than the spread

    # TP811 adversarial-imbalance. Source: reasoned; 2 ln 2 and 0.5 are legitimate optima unless constant.
    adversarial_min_records: int = 50
    adversarial_zero: float = 1e-3  # |loss|
    adversarial_share: float = 0.9  # of the last 50 records
    adversarial_digits: int = 4  # significant digits of a constant

    # TP812 alignment-not-learned. Source: reasoned (attention of speech models locks on within the first thousands of steps).
    alignment_min_records: int = 100
    alignment_share: float = 0.10  # of the start, improvement
    alignment_loss: float = 0.10  # fall of the loss meanwhile
    alignment_z: float = -3.0  # Mann-Kendall Z of a clear improvement

    # TP813 truncated-completions. Source: two public runs at 0.91 and 1.0.
    truncated_share: float = 0.9  # of the completions, median
    truncated_records: int = 10

    # TP814 length-without-reward. Source: reasoned.
    length_min_records: int = 60
    length_times: float = 2.0  # the first tenth's median
    length_z: float = 4.0  # Mann-Kendall Z
    length_reward_z: float = 1.96  # Z below which the reward does not rise

    # TP804 no-advantage-signal. Source: a public run with an all-equal group in 84 of 100 records.
    signal_share: float = 0.9  # of the groups
    signal_window: int = 20  # records
    signal_records: int = 10  # of these
    signal_rises: float = 3.0  # Mann-Kendall Z of a reward that rises all the same
    signal_dead: int = 50  # records without any movement: FAIL
    floor_min_records: int = 50  # where only the reward is logged
    floor_window: int = 100  # records
    floor_share: float = 0.75  # of them at the lowest reward so far

    # TP807 reward-collapse. Source: public episode logs.
    collapse_min_records: int = 40
    collapse_width: int = 10  # records of a level
    collapse_share: float = 0.50  # of what had been gained, FAIL
    collapse_share_warn: float = 0.40
    collapse_noise: float = 3.0  # units of noise
    collapse_records: int = 20


class ComparisonThresholds(msgspec.Struct, frozen=True):
    """Families TP97 and TP98. Limits are those for one baseline, worse counted as positive; several baselines move them."""

    # TP971 worse-than-baseline, TP972 floor-above-baseline, TP975 slower-slope, TP976 improvement-lost, TP977 end-above-baseline, TP978
    # eval-above-baseline, TP980 grad-norm-level, TP981 slower-than-baseline, TP982 more-memory, TP983 later-to-loss, TP984
    # first-divergence. Source: measured (docs/comparison.md).
    noise_se: float = 3.5  # standard errors of a median, by Student's t for few records
    noise_records: int = 4  # matched records that can tell their noise
    mad_efficiency: float = 0.37  # degrees of freedom a record: efficiency of the MAD, normal law
    seed_prior: float = 4.0  # baselines that the assumed seed spread weighs as much as
    seed_z: float = 2.576  # normal quantile of 0.5 %: a seed is outside by chance so rarely
    clearly: float = 2.5  # times the WARN limit: FAIL
    noisy: float = 0.5  # log units: noise that could hide more than this cannot tell anything

    # TP971 worse-than-baseline.
    end_share: float = 0.20  # of the matched records
    end_records: int = 20  # ... and at least so many
    loss_warn: float = 0.02  # log units; also TP972, TP975, TP977; the FAIL limit is `clearly` times it

    # TP972 floor-above-baseline, TP976 improvement-lost, TP977 end-above-baseline. Source: convention (a twentieth of the run).
    level_share: float = 0.05  # of the matched records
    level_records: int = 5  # ... and at least so many

    # TP973 integer-loss-ratio. Source: public reports of summed accumulation steps (ratios of 5.000 and 5.000).
    integer_records: int = 5  # matched records
    integer_spread: float = 0.05  # robust standard deviation of the log ratio
    integer_near: float = 0.03  # relative distance from the integer ...
    integer_off: float = 0.25  # ... and absolute
    integer_most: int = 64

    # TP975 slower-slope. Source: measured.
    slope_records: int = 30  # matched records

    # TP976 improvement-lost. Source: convention.
    improvement_lost: float = 0.25  # of the baselines' improvement, WARN

    # TP978 eval-above-baseline. Source: convention (as TP971 for losses; task metrics are noisier).
    eval_share: float = 0.20  # of the matched evaluations
    eval_records: int = 3  # ... and at least so many
    eval_seeds: int = 3  # baselines whose spread tells it where there are fewer
    metric_warn: float = 0.05  # log units, task metrics
    metric_least: float = 0.01  # absolute, for shares of 1

    # TP979 lr-differs. Source: convention (six printed digits agree to 1e-6).
    rate_records: int = 5  # matched records
    rate_differs: float = 0.01  # relative, in the median matched record that moves

    # TP980 grad-norm-level, TP981 slower-than-baseline, TP982 more-memory. Source: convention; 20 % is what a CI job acts on.
    norm_warn: float = 0.693  # log units: twice or half
    speed_warn: float = 0.223  # log units: a fifth slower
    memory_warn: float = 0.0953  # log units: a tenth more
    cost_records: int = 5  # matched records

    # TP983 later-to-loss. Source: convention.
    target_share: float = 0.8  # of the baseline's improvement: the loss to reach
    target_later: float = 1.25  # times the steps

    # TP984 first-divergence. Source: convention.
    divergence_blocks: int = 40  # stretches of the matched records
    divergence_least: float = 0.01  # log units


class ThroughputThresholds(msgspec.Struct, frozen=True):
    """Family TP90."""

    # TP901 throughput-drop. Source: reasoned; a slow stretch that ended (10 x, a public run) is not told.
    drop_min_records: int = 140
    drop_reference: tuple[int, int] = (20, 120)  # records whose median is the reference
    drop_width: int = 20  # records of a level
    drop_records: int = 40  # records that it has to hold, to the end
    drop_warn: float = 2.0  # times
    drop_fail: float = 20.0  # a healthy public run stood at 10 for 420 records and came back; a reported collapse at 60

    # TP902 step-time-creep. Source: measured (healthy runs at most 1.135, leaks 1.33 to 4.0).
    creep_min_records: int = 60
    creep_skip: int = 20  # records at the start
    creep_epochs: int = 10  # epochs, where step times are compared epoch by epoch
    creep_epoch_records: int = 5  # records of such an epoch
    creep_look: float = 1.15  # largest tenth over smallest, under which nothing is asked
    creep_warn: float = 1.3  # last tenth over first
    creep_fail: float = 3.0
    creep_jump: float = 0.5  # of the rise in logarithms, between two neighbours of ten stretches: a jump, no creep
    creep_z: float = 4.0  # Mann-Kendall Z
    creep_few: int = 30  # epochs under which ...
    creep_z_few: float = 2.5  # ... a smaller Z is clear: each is a median of its own

    # TP903 stalls. Source: reasoned.
    stall_min_records: int = 100
    stall_skip: int = 20  # records at the start
    stall_times: float = 3.0  # the median step
    stall_records: int = 3  # such steps
    stall_share: float = 0.10  # of the time
    stall_lag: int = 20  # steps between them: the optimizer's own rhythm
    stall_regular: float = 0.1  # relative deviation of a distance that counts as regular
    stall_regular_share: float = 0.8  # of the distances

    # TP904 data-bound. Source: a healthy public run waits 92 % of its time, hence INFO; the share is reasoned.
    data_min_records: int = 20
    data_share: float = 0.3  # of the time
    data_grown: float = 3.0  # last quarter over first: WARN
    data_warn: float = 1.01  # of the time, WARN: never unless lowered

    # TP905 memory-growth. Source: the +10 % of Amazon SageMaker Debugger's GPUMemoryIncrease; the rest reasoned.
    memory_min_records: int = 20
    memory_growth: float = 0.10  # of the first tenth
    memory_half: float = 0.03  # of the middle
    memory_z: float = 4.0  # Mann-Kendall Z of the whole
    memory_z_half: float = 2.5  # of either half

    # TP906 memory-near-limit. Source: convention.
    memory_near: float = 0.97  # of the limit

    # TP907 truncated. Source: convention.
    truncated_share: float = 0.95  # of the planned steps

    # TP908 straggler-rank. Source: reasoned.
    rank_least: int = 3  # ranks
    rank_records: int = 20
    rank_times: float = 1.2  # the median of the ranks


class PipelineThresholds(msgspec.Struct, frozen=True):
    """Family TP92. Source of all that is not said otherwise: the post-mortem of a public run with decoupled prefetch threads."""

    # TP921 checkpoint-stall, TP922 spike-after-gap, TP923 cliff-without-gap: what a gap is. Source: seen 27 and 18 steps.
    gap_min_records: int = 40
    gap_steps: float = 5.0  # usual distances of steps
    gap_seconds: float = 5.0  # usual times between records
    gap_share: float = 0.02  # of the records: more gaps are how the run logs

    # TP921 checkpoint-stall. Source: seen at 2,000 and 4,001 with saves every 2,000 steps.
    stall_gaps: int = 2
    stall_near: int = 5  # steps from a multiple of the save interval ...
    stall_off: float = 0.01  # ... or this share of it
    stall_told: int = 4  # gaps that the message names

    # TP922 spike-after-gap. Source: seen 0.79 to 13.0 and 0.7 to 7.2.
    after_level: int = 20  # records before the gap
    after_records: int = 5  # records after it
    after_times: float = 3.0  # the level before
    after_back: int = 20  # records within which it is back ...
    after_back_times: float = 1.5  # ... under this times the level

    # TP923 cliff-without-gap. Source: seen an accuracy of 0.15 fall to 0.005.
    cliff_min_records: int = 60
    cliff_share: float = 0.2  # of the median of the 64 records before
    cliff_level: float = 0.02  # that median at least
    cliff_records: int = 5
    cliff_apart: int = 10  # records before it without a gap
    cliff_back: float = 0.8  # of the level: recovered

    # TP924 first-step-at-full-rate. Source: seen 6e-4 at step 0 and 6.43e-7 at step 2.
    first_times: float = 10.0  # the second record's rate
    first_rises: int = 4  # rises that follow
    first_step: int = 1  # latest first step

    # TP925 warmup-longer-than-declared. Source: seen 3,500 to 4,000 steps for a declared 463.
    warmup_times: float = 1.5  # the declared warm-up
    warmup_above: float = 0.10  # above the rate at its end

    # TP926 epoch-arithmetic. Source: seen epoch 0.40 at step 4,635 of 11,586 and 6 epochs.
    epoch_share: float = 0.10  # of the planned steps, before which nothing is said
    epoch_records: int = 5
    epoch_near: float = 0.25  # relative: a few batches an epoch and rounding make 20 %

    # TP927 multimodal-loss. Source: sums of squares left by the best cuts of uniform and normal samples (0.25 and 0.36; 0.11 and 0.19).
    modes_window: int = 200  # records
    modes_left: tuple[float, float] = (0.12, 0.05)  # of the variance after two levels, after three
    modes_outlier: float = 3.0  # interquartile ranges beyond the quartiles
    modes_share: float = 0.10  # of the records on each level
    modes_gap: float = 0.2  # of the way between two levels, empty but for 5 % of either
    modes_longest: float = 0.4  # of the window, the longest stretch on one level
    modes_runs: int = 8  # stretches of one level
    modes_z: float = 4.0  # |Z| of the runs test

    # TP928 queue-decline. Source: seen 300 to 220 over 4,500 steps.
    queue_min_records: int = 60
    queue_share: float = 0.75  # of the first tenth
    queue_z: float = 4.0  # |Mann-Kendall Z|
    queue_uneven: float = 2.0  # longest over shortest
    queue_ends: int = 20  # latest records


class ArchitectureThresholds(msgspec.Struct, frozen=True):
    """Family TP95."""

    # TP951 expert-imbalance. Source: reasoned.
    expert_records: int = 20  # to the end
    expert_tokens: float = 1000.0  # a record, where loads are counts
    expert_times: float = 4.0  # the mean load, WARN
    expert_top: float = 0.9  # of all tokens on one expert, FAIL
    expert_starved: float = 0.05  # of the mean load
    expert_starved_share: float = 0.75  # of the experts, FAIL

    # TP952 auxiliary-loss-constant. Source: convention (6 digits).
    auxiliary_records: int = 50
    auxiliary_near: float = 1e-6  # relative

    # TP953 logit-or-norm-growth. Source: reasoned; not verified against a published limit.
    growth_min_records: int = 60
    growth_hold: int = 20  # records
    growth_jump: float = 5.0  # median of 5 over the median of the 64 before
    growth_times: float = 3.0  # over the last half
    growth_z: float = 4.0  # Mann-Kendall Z
    attention_share: float = 0.10  # of the first entropies


class CheckpointThresholds(msgspec.Struct, frozen=True):
    """Family TP99."""

    # TP991 parameter-unchanged. Source: convention (fifty steps of any optimizer move every weight that has a gradient).
    unchanged_steps: int = 50  # steps between two checkpoints
    unchanged_share: float = 0.01  # of the parameters, in elements: below it at most WARN

    # TP993 resume-state-incomplete. Source: convention (a loop that counts from 0, or in micro-batches, is no mismatch).
    step_slack: int = 1  # steps between two counters that count the same
    step_accumulation: int = 8  # micro-batches a step at most


class DataThresholds(msgspec.Struct, frozen=True):
    """Family TPD: data before training. Shares are of the records."""

    # TPD103 replacement-character. Source: convention (a text that was decoded wrongly has them everywhere).
    replaced_fail: float = 0.001

    # TPD006 field-type. Source: convention (a field that changes its type often is meant to).
    type_rare: float = 0.1  # a type that fewer of the records have

    # TPD106 mixed-script-words, TPD114 empty-answer, TPD117 decomposed-characters, TPD129 template-tokens, TPD232 digits, TPD233 abbreviations.
    # Source: convention.
    odd_rare: float = 0.2  # a share from which on it is how the data is

    # TPD108 exact-duplicates. Source: convention.
    duplicates_warn: float = 0.001
    duplicates_fail: float = 0.05

    # TPD109 near-duplicates, TPD163 near-leak. Source: the similarity that DataTrove and text-dedup look for (0.75, 0.7).
    near_similarity: float = 0.75
    near_warn: float = 0.0005
    near_most: int = 3_000_000  # records, whose signatures are 0.7 GB

    # TPD111 length-outlier. Source: convention.
    length_times: float = 20.0  # the 99th percentile
    length_records: int = 200

    # TPD116 rare-script. Source: convention.
    script_rare: float = 0.005
    script_records: int = 200

    # TPD118 over-context, TPD301 trainer-sound-length, TPD302 trainer-label-length. Source: convention (a fifth of cut records is what other tools call major).
    over_warn: float = 0.01
    over_fail: float = 0.20

    # TPD301 trainer-sound-length, TPD302 trainer-label-length, TPD304 trainer-turn-order, TPD306 trainer-unknown-tokens.
    # Source: convention (as with duplicates).
    left_out_fail: float = 0.05  # of the records

    # TPD131 same-prompt-other-answer. Source: convention.
    prompts_warn: float = 0.001

    # TPD154 length-bias. Source: convention.
    longer_share: float = 0.9
    longer_records: int = 50

    # TPD206 clipping. Source: convention (flat tops of three samples at a clip's own peak do not come by chance).
    clipped_runs: int = 5

    # TPD209 dc-offset. Source: the limit that other tools use.
    offset: float = 0.02  # of full scale

    # TPD211 silent. Source: convention (16 bits resolve -96 dB).
    silent_peak: float = 0.001  # of full scale

    # TPD212 edge-silence, TPD213 long-pause. Source: limits of other tools (1 s, 2 s); levels relative to the clip.
    edge_seconds: float = 1.0
    pause_seconds: float = 2.0

    # TPD219 ends-abruptly. Source: measured on synthesised speech; none of 2,746 recorded prompts is told (docs/preflight.md).
    tail_under: float = 10.0  # dB under the loud frames
    tail_share: float = 0.2  # of the clips: more of them are how the pack is cut

    # TPD214 level-outlier, TPD215 noisy, TPD216 band-limited. Source: measured on synthesised speech; TPD214 and TPD215 tell one each of
    # 2,746 recorded prompts (docs/preflight.md).
    level_under: float = 20.0  # dB under the median of the clips
    dynamic_under: float = 20.0  # dB
    band_under: float = 20.0  # dB

    # TPD217 too-short, TPD218 too-long. Source: convention.
    shortest: float = 0.3  # seconds
    longest: float = 30.0

    # TPD221 rate-outlier. Source: convention; robust z of the logarithm, and a factor as the absolute guard.
    rate_z: float = 5.0
    rate_times: float = 1.8
    rate_clips: int = 20

    # TPD210 phase-opposed. Source: the limit that other tools use.
    opposed: float = -0.9  # correlation of the channels

    # TPD223 duplicate-audio. Source: reasoned (of 63 coin tosses 8 or fewer, or 55 or more, are alike once in 10^9 tries).
    sign_changes: int = 8  # of 63 samples

    # TPD235 rare-characters. Source: convention.
    character_clips: int = 3  # fewer clips that have it
    character_records: int = 100

    # TPD243 speaker-imbalance. Source: convention.
    speaker_times: float = 20.0  # clips of the largest voice over those of the smallest

    # TPD251 transcript-leak. Source: convention (short sentences are said twice).
    leak_share: float = 0.05  # of the evaluation side, FAIL

    # TPD155 label-distribution. Source: convention.
    label_rare: float = 0.01
    label_records: int = 100


class BatchThresholds(msgspec.Struct, frozen=True):
    """Family TPO: one batch before training."""

    # TPO105 rows-without-labels. Source: convention.
    masked_fail: float = 0.2  # of the rows

    # TPO106 label-shift. Source: convention (labels that are the inputs are so nearly everywhere).
    shift_share: float = 0.9  # of the labels that count

    # TPO110 classes-without-targets. Source: convention.
    classes_most: int = 1000
    classes_labels: float = 20.0  # labels a class

    # TPO112 loss-above-chance. Source: convention.
    chance_times: float = 1.5
    chance_more: float = 1.0  # nats


class TokenizerThresholds(msgspec.Struct, frozen=True):
    """Family TPT: a tokenizer on texts."""

    # TPT101 unknown-tokens. Source: the limit that other tools use.
    unknown_fail: float = 0.001  # of the tokens

    # TPT102 byte-fallback. Source: convention.
    bytes_warn: float = 0.01  # of the tokens

    # TPT103 token-blow-up. Source: convention.
    blow_characters: int = 20  # of a text that is compared
    blow_texts: int = 50
    blow_times: float = 3.0  # the median
    blow_share: float = 0.01  # of the texts

    # TPT104 no-round-trip. Source: convention.
    round_trip_fail: float = 0.01  # of the texts

    # TPT107 spaces-lost. Source: convention.
    spaces_share: float = 0.05  # of the texts

    # TPT108 numbers-in-pieces. Source: convention.
    numbers: int = 50  # numbers of four digits
    numbers_usual: float = 0.9  # share of them that are split in one way

    # TPT109 script-in-pieces. Source: convention (letters cost 0.2 to 0.5 tokens where a tokenizer knows the script; bytes cost 2 to 3).
    script_texts: int = 20
    script_rate: float = 1.0  # tokens a character
    script_dense: float = 1.5

    # TPT110 tokens-per-second. Source: the limit that another tool uses; encoders have 25 to 50 frames a second.
    second_tokens: float = 50.0

    # TPT118 unused-vocabulary. Source: convention.
    unused_times: float = 20.0  # tokens of text a token of the vocabulary
    unused_share: float = 0.5

    # TPT117 untrained-token. Source: convention (rows that were never trained are zero, or as small as their initial noise).
    untrained_size: float = 0.001  # of the median row's largest number


class MachineThresholds(msgspec.Struct, frozen=True):
    """Family TPE: the machine."""

    # TPE108 shared-memory. Source: containers have 0.0625 by default, on which loaders fail; a gibibyte carries small batches.
    shared_warn: float = 1.0  # GiB

    # TPE109 open-files. Source: convention (the usual soft limit is 1,024).
    files_warn: int = 1024

    # TPE110 clock. Source: convention.
    made: float = 1.735e9  # seconds since 1970: the beginning of 2025
    ahead: float = 300.0  # seconds

    # TPE112 checkpoints-fill-the-disk. Source: convention (a night and a day).
    checkpoints_least: int = 3
    hours_left: float = 24.0


class ExperimentThresholds(msgspec.Struct, frozen=True):
    """Rules TP108, TP109 and TP707."""

    # TP108 collapse-cause: a rise of the held-out loss that is one. Source: made courses (tests/replay/test_bisecting.py) with a noise of
    # 5 %, and the jobs of tools/trial_jobs.py: of 300 healthy runs none has such a rise, of 216 with a fault all but two.
    rise_noise: float = 5.0  # times the noise before it, less where the level is kept
    rise_swing: float = 1.5  # times the largest rise of the changes just before it
    rise_share: float = 0.25  # of the level before it
    rise_learned: float = 0.25  # of what had been learned; more where fewer than three evaluations keep it
    rise_lost: float = (
        0.9  # of what had been learned, where a single value at the end says so; for examples/bisect/transformer.py
    )
    rise_lost_checkpoint: float = 0.5  # the same, where there are checkpoints alone: reasoned
    rise_kept: float = 0.25  # quantile of the values from there on that is the level that is kept

    # Between the level before and the one that is kept both are possible: a counterfactual there is trained on and looked at again. Source:
    # of 80 trials two were taken for the other side there (python -m tools.calibrate_bisect --seed 2000).
    unsure: float = 0.5  # of the rise, on both sides of its middle

    # TP707 resume-equivalence, of two logs. Source: measured between devices and thread counts (1e-6 to 5e-7 in the loss), widened
    # for low precision.
    resume_steps: int = 5  # steps after the interruption that are compared
    resume_loss: float = 1e-3  # relative
    resume_norm: float = 1e-2  # relative, of the gradient norm
    resume_rate: float = 1e-6  # relative, of the learning rate: how loggers round it


class Thresholds(msgspec.Struct, frozen=True):
    """All thresholds, one group a rule family (the field is the family's module name)."""

    log_quality: LogQualityThresholds = LogQualityThresholds()
    numerics: NumericsThresholds = NumericsThresholds()
    loss: LossThresholds = LossThresholds()
    learning_rate: LearningRateThresholds = LearningRateThresholds()
    gradients: GradientThresholds = GradientThresholds()
    evaluation: EvaluationThresholds = EvaluationThresholds()
    data_order: DataOrderThresholds = DataOrderThresholds()
    resume: ResumeThresholds = ResumeThresholds()
    preference: PreferenceThresholds = PreferenceThresholds()
    comparison: ComparisonThresholds = ComparisonThresholds()
    throughput: ThroughputThresholds = ThroughputThresholds()
    pipeline: PipelineThresholds = PipelineThresholds()
    architecture: ArchitectureThresholds = ArchitectureThresholds()
    checkpoint: CheckpointThresholds = CheckpointThresholds()
    data: DataThresholds = DataThresholds()
    objective: BatchThresholds = BatchThresholds()
    tokenizer: TokenizerThresholds = TokenizerThresholds()
    environment: MachineThresholds = MachineThresholds()
    experiment: ExperimentThresholds = ExperimentThresholds()

    def with_overrides(self, overrides: dict[str, float]) -> Thresholds:
        """These thresholds with `family.field` keys replaced. Raises UsageError for an unknown key."""
        changed = self
        for key, value in overrides.items():
            family, _, field = key.partition(".")
            group = getattr(changed, family, None)
            if not isinstance(group, msgspec.Struct) or field not in group.__struct_fields__:
                raise UsageError(f"unknown threshold {key!r}; known keys look like loss.diverged_ratio")
            group = msgspec.structs.replace(group, **{field: value})
            changed = msgspec.structs.replace(changed, **{family: group})
        return changed

    def overrides(self) -> dict[str, float]:
        """`family.field` -> value for every threshold that differs from its default."""
        different: dict[str, float] = {}
        if self == DEFAULT_THRESHOLDS:
            return different
        for family in self.__struct_fields__:
            mine, default = getattr(self, family), getattr(DEFAULT_THRESHOLDS, family)
            for field in mine.__struct_fields__:
                if getattr(mine, field) != getattr(default, field):
                    different[f"{family}.{field}"] = getattr(mine, field)
        return different


DEFAULT_THRESHOLDS = Thresholds()
