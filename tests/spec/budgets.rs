//! Budgets: what a task may use up, over all its attempts.

use crate::support::World;
use serde_json::json;
use workspool::model::{State, TaskId, TaskResult};

/// A program that reports its use as Claude Code does, leaves a file, and exits with `code`.
fn link(world: &World, name: &str, tokens: u64, code: i32) {
    let line = json!({
        "type": "result", "subtype": "success", "is_error": false, "result": "done", "num_turns": 3,
        "session_id": "s", "total_cost_usd": 0.5, "usage": {"input_tokens": tokens, "output_tokens": 0},
    });
    let script = format!("cat > /dev/null; echo x > made.txt; echo '{line}'; exit {code}");
    let command = json!(["sh", "-c", script]).to_string();
    world.run(&["workers", "link", name, "--command", &command, "--output", "claude"]).ok();
}

fn submit(world: &World, worker: &str, budget: &serde_json::Value) -> TaskId {
    let repo = world.repo("project");
    let task = json!({
        "objective": "x", "worker": worker, "repository": repo.path(), "retries": 5, "budget": budget,
    });
    world.submit_file("-").input(task.to_string()).ok()
}

fn ended(world: &World, id: TaskId) -> TaskResult {
    world.drain();
    world.await_end(id)
}

#[test]
fn each_figure_has_a_limit_and_a_breach_is_salvaged() {
    for (budget, unit) in [
        (json!({"tokens": 100}), "Tokens"),
        (json!({"turns": 2}), "Turns"),
        (json!({"cost_usd": 0.25}), "CostUsd"),
    ] {
        let world = World::new();
        link(&world, "spender", 110, 0);
        let id = submit(&world, "spender", &budget);
        let result = ended(&world, id);
        assert_eq!(result.state, State::BudgetExceeded, "{budget}: {result:?}");
        assert!(result.message.contains(unit), "{}", result.message);
        assert_eq!(result.attempts.len(), 1, "a breach is not repeated");
        assert!(result.salvage.is_some_and(|s| s.complete), "what it made is kept");
        assert_eq!(result.commit, None);
    }
}

#[test]
fn attempts_that_follow_by_themselves_share_one_budget() {
    let world = World::configured("[defaults]\nretry_delay = 0\n");
    link(&world, "spender", 60, 3);
    let id = submit(&world, "spender", &json!({"tokens": 100}));
    let result = ended(&world, id);
    assert_eq!(result.state, State::BudgetExceeded, "{result:?}");
    // The second time breaches it, whether it is caught before it fails by itself or not.
    let used: Vec<u64> = result.attempts.iter().filter_map(|a| a.usage.input_tokens).collect();
    assert_eq!(used, [60, 60], "{result:?}");
}

#[test]
fn a_budget_that_is_used_up_starts_no_worker() {
    let world = World::configured("[defaults]\nretry_delay = 0\n");
    link(&world, "spender", 50, 3);
    let id = submit(&world, "spender", &json!({"tokens": 100}));
    let result = ended(&world, id);
    assert_eq!(result.state, State::BudgetExceeded, "{result:?}");
    // Two of fifty are a hundred; whether the second breached or the third was not begun, no more is used.
    let used: u64 = result.attempts.iter().filter_map(|a| a.usage.input_tokens).sum();
    assert_eq!(used, 100, "{result:?}");
    // Somebody who asks for another attempt has it begin anew.
    world.on("retry", id, &[]).ok();
    let again = ended(&world, id);
    assert!(again.attempts.len() > result.attempts.len());
    assert!(again.attempts.iter().filter_map(|a| a.usage.input_tokens).sum::<u64>() > 100, "{again:?}");
}

#[test]
fn seconds_are_counted_while_the_worker_runs() {
    let world = World::new();
    let task = json!({"objective": "sleep 60", "worker": "shell", "budget": {"seconds": 1}});
    let id = world.submit_file("-").input(task.to_string()).ok();
    let result = ended(&world, id);
    assert_eq!(result.state, State::BudgetExceeded, "{result:?}");
}
