//! Decides when a command has had enough: deadlines, budgets, lingering.

use super::plan::{Budget, Deadlines};
use super::record::{BudgetKind, Cause, DeadlineKind};
use crate::model::Usage;
use std::time::{Duration, Instant};

/// What was seen of the command so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) started: Instant,
    pub(super) first_byte: Option<Instant>,
    pub(super) last_byte: Option<Instant>,
    pub(super) last_word: Option<Instant>,
}

/// Returns why the command must end now, if it must.
pub(super) fn broken(
    deadlines: &Deadlines,
    budget: &Budget,
    seen: &Seen,
    usage: &Usage,
    now: Instant,
) -> Option<Cause> {
    if let Some(cause) = over_budget(budget, usage, now.saturating_duration_since(seen.started)) {
        return Some(cause);
    }
    due(deadlines, seen).into_iter().filter(|(at, _)| *at <= now).min_by_key(|(at, _)| *at).map(|(_, c)| c)
}

/// Returns how long from now the next limit can pass, if any can pass by time alone.
pub(super) fn next(deadlines: &Deadlines, budget: &Budget, seen: &Seen, now: Instant) -> Option<Duration> {
    let budget = budget.seconds.and_then(|s| seen.started.checked_add(Duration::from_secs(s)));
    let next = due(deadlines, seen).into_iter().map(|(at, _)| at).chain(budget).min()?;
    Some(next.saturating_duration_since(now))
}

fn due(deadlines: &Deadlines, seen: &Seen) -> Vec<(Instant, Cause)> {
    let mut due = Vec::new();
    let mut add = |from: Option<Instant>, ms: Option<u64>, cause: Cause| {
        // A limit too far away to be a time is no limit.
        if let (Some(from), Some(ms)) = (from, ms)
            && let Some(at) = from.checked_add(Duration::from_millis(ms))
        {
            due.push((at, cause));
        }
    };
    let deadline = |which| Cause::Deadline { which };
    add(Some(seen.started), deadlines.total_ms, deadline(DeadlineKind::Total));
    let silent_since = seen.last_byte.unwrap_or(seen.started);
    add(Some(silent_since), deadlines.silence_ms, deadline(DeadlineKind::Silence));
    if seen.first_byte.is_none() {
        add(Some(seen.started), deadlines.start_ms, deadline(DeadlineKind::Start));
    }
    add(seen.last_word, Some(deadlines.final_ms), Cause::Lingered);
    due
}

pub(super) fn over_budget(budget: &Budget, usage: &Usage, elapsed: Duration) -> Option<Cause> {
    let tokens = match (usage.input_tokens, usage.output_tokens) {
        (None, None) => None,
        (read, written) => Some(read.unwrap_or(0).saturating_add(written.unwrap_or(0))),
    };
    let whole = |n: Option<u64>| n.map(|n| n as f64);
    [
        (BudgetKind::Seconds, Some(elapsed.as_secs_f64()), whole(budget.seconds)),
        (BudgetKind::Tokens, whole(tokens), whole(budget.tokens)),
        (BudgetKind::ToolCalls, whole(usage.tool_calls), whole(budget.tool_calls)),
        (BudgetKind::Turns, whole(usage.turns), whole(budget.turns)),
        (BudgetKind::CostUsd, usage.cost_usd, budget.cost_usd),
    ]
    .into_iter()
    .find_map(|(which, used, limit)| match (which, used?, limit?) {
        // Time is used up when it is reached; the rest may be used in full.
        (BudgetKind::Seconds, used, limit) if used >= limit => Some(Cause::Budget { which, used, limit }),
        (_, used, limit) if used > limit => Some(Cause::Budget { which, used, limit }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(started: Instant, ms: u64) -> Instant {
        started + Duration::from_millis(ms)
    }

    #[test]
    fn the_first_limit_that_passed_is_the_cause() {
        let t = Instant::now();
        let deadlines =
            Deadlines { total_ms: Some(100), silence_ms: Some(50), start_ms: Some(20), final_ms: 10 };
        let budget = Budget::default();
        let mut seen = Seen { started: t, first_byte: None, last_byte: None, last_word: None };
        let why = |seen: &Seen, ms| broken(&deadlines, &budget, seen, &Usage::default(), at(t, ms));
        assert_eq!(why(&seen, 19), None);
        assert_eq!(why(&seen, 200), Some(Cause::Deadline { which: DeadlineKind::Start }));
        seen.first_byte = Some(at(t, 5));
        seen.last_byte = Some(at(t, 30));
        assert_eq!(next(&deadlines, &budget, &seen, at(t, 30)), Some(Duration::from_millis(50)));
        assert_eq!(why(&seen, 79), None);
        assert_eq!(why(&seen, 80), Some(Cause::Deadline { which: DeadlineKind::Silence }));
        seen.last_byte = Some(at(t, 95));
        assert_eq!(why(&seen, 100), Some(Cause::Deadline { which: DeadlineKind::Total }));
        seen.last_word = Some(at(t, 80));
        assert_eq!(why(&seen, 100), Some(Cause::Lingered));
    }

    #[test]
    fn a_budget_may_be_used_in_full_and_unreported_use_breaks_nothing() {
        let t = Instant::now();
        let seen = Seen { started: t, first_byte: None, last_byte: None, last_word: None };
        let budget = Budget { tokens: Some(10), cost_usd: Some(0.5), ..Budget::default() };
        let why = |usage: Usage| broken(&Deadlines::default(), &budget, &seen, &usage, t);
        assert_eq!(why(Usage::default()), None);
        let tokens = |read, written| Usage { input_tokens: read, output_tokens: written, ..Usage::default() };
        assert_eq!(why(tokens(Some(6), Some(4))), None);
        let over = Cause::Budget { which: BudgetKind::Tokens, used: 11.0, limit: 10.0 };
        assert_eq!(why(tokens(Some(11), None)), Some(over));
        let over = Cause::Budget { which: BudgetKind::CostUsd, used: 0.75, limit: 0.5 };
        assert_eq!(why(Usage { cost_usd: Some(0.75), ..Usage::default() }), Some(over));
        let budget = Budget { seconds: Some(2), ..Budget::default() };
        assert_eq!(next(&Deadlines::default(), &budget, &seen, t), Some(Duration::from_secs(2)));
        let late = broken(&Deadlines::default(), &budget, &seen, &Usage::default(), at(t, 2000));
        assert_eq!(late, Some(Cause::Budget { which: BudgetKind::Seconds, used: 2.0, limit: 2.0 }));
    }

    #[test]
    fn a_limit_beyond_time_is_none() {
        let t = Instant::now();
        let seen = Seen { started: t, first_byte: None, last_byte: None, last_word: None };
        let deadlines = Deadlines { total_ms: Some(u64::MAX), ..Deadlines::default() };
        assert_eq!(broken(&deadlines, &Budget::default(), &seen, &Usage::default(), t), None);
    }
}
