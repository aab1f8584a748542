//! What is removed by itself: nothing, unless it is switched on.

use super::support::{Home, until};

/// Whether the workspace of a task is there.
fn has_workspace(home: &Home, id: &str) -> bool {
    let folders = std::fs::read_dir(home.spool().join("worktrees")).unwrap();
    folders.filter_map(Result::ok).any(|folder| folder.path().join(id).exists())
}

#[test]
fn old_tasks_go_by_themselves_only_where_that_is_switched_on() {
    let home = Home::new();
    let log = home.spool().join("logs/retention.log");
    let ended = home.submit("exit 3");
    home.run(["run", "--drain"]).good();
    home.run(["tick"]).good();
    assert!(has_workspace(&home, &ended) && !log.exists(), "it is off");

    home.write("spool/config.toml", "[retention]\ndays = 30\n");
    home.run(["tick"]).good();
    until("the first look", || log.exists().then_some(()));
    assert!(has_workspace(&home, &ended), "it is not old enough");

    // With no days at all, all is old; and the look is long enough ago.
    home.write("spool/config.toml", "[retention]\ndays = 0\n");
    home.run(["tick"]).good();
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7 * 3600);
    std::fs::File::options().write(true).open(&log).unwrap().set_modified(long_ago).unwrap();
    home.run(["tick"]).good();
    until("the task to go", || {
        (!home.spool().join("tasks").join(&ended).exists() && !has_workspace(&home, &ended)).then_some(())
    });
    let said = until("the log", || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.contains("removed").then_some(text)
    });
    assert!(said.contains(&ended), "{said}");
}
