//! What is left of a task's budget when its worker is to run.

use super::Attempt;
use super::conclude::ended_file;
use super::outcome::{End, Outcome};
use crate::keeper::Budget;
use crate::model::{Phase, Usage};

impl Attempt {
    /// What the worker may use now. What earlier rounds used is used, and so is what earlier attempts used
    /// that this one repeats by itself. One that somebody asked for begins anew.
    pub(super) fn budget_left(&self, outcome: &Outcome) -> Result<Budget, End> {
        let (mut used, mut ms) = (outcome.usage.clone(), outcome.durations.working_ms.unwrap_or(0));
        for n in (1..self.number()).rev() {
            let Some(ended) = ended_file(&self.locked, n).filter(|ended| ended.next.is_some()) else { break };
            used.add(&ended.summary.usage);
            ms = ms.saturating_add(ended.summary.working_ms.unwrap_or(0));
        }
        let (asked, most) = (&self.task.spec.budget, &self.config.ceilings.budget);
        Ok(Budget {
            seconds: left("seconds", asked.seconds.or(most.seconds), ms / 1000)?,
            tokens: left("tokens", asked.tokens.or(most.tokens), tokens(&used))?,
            tool_calls: left(
                "tool calls",
                asked.tool_calls.or(most.tool_calls),
                used.tool_calls.unwrap_or(0),
            )?,
            turns: left("turns", asked.turns.or(most.turns), used.turns.unwrap_or(0))?,
            cost_usd: match asked.cost_usd.or(most.cost_usd) {
                Some(all) => {
                    let spent = used.cost_usd.unwrap_or(0.0);
                    if spent > 0.0 && spent >= all {
                        return Err(used_up(&format!("{all} US dollars")));
                    }
                    Some(all - spent)
                }
                None => None,
            },
        })
    }
}

fn tokens(used: &Usage) -> u64 {
    used.input_tokens.unwrap_or(0).saturating_add(used.output_tokens.unwrap_or(0))
}

fn left(unit: &str, all: Option<u64>, used: u64) -> Result<Option<u64>, End> {
    match all {
        Some(all) if used > 0 && used >= all => Err(used_up(&format!("{all} {unit}"))),
        all => Ok(all.map(|all| all.saturating_sub(used))),
    }
}

fn used_up(budget: &str) -> End {
    End::over_budget(
        Phase::Working,
        format!("the budget of {budget} was used up before the worker could run again"),
    )
}
