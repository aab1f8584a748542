//! `workspool metrics` after real tasks, completions and manual pages.

use super::support::Home;

#[test]
fn ended_tasks_are_counted_once_each() {
    let home = Home::new();
    home.submit("true");
    home.submit("exit 3");
    let cancelled = home.submit("true");
    home.run(["cancel", &cancelled]).good();
    home.run(["run", "--drain"]).good();
    home.submit("true");
    let text = home.run(["metrics", "--prometheus"]).good();
    for line in [
        "workspool_tasks_ended_total{state=\"succeeded\",class=\"\"} 1",
        "workspool_tasks_ended_total{state=\"failed\",class=\"worker_failed\"} 1",
        "workspool_tasks_ended_total{state=\"cancelled\",class=\"\"} 1",
        "workspool_tasks{state=\"queued\",reason=\"\"} 1",
        "workspool_phase_duration_seconds_count{phase=\"working\"} 2",
        "workspool_worker_tasks_total{worker=\"shell\",model=\"\"} 2",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
    }
    let file = home.path().join("w.prom");
    home.run(["metrics", "--textfile", file.to_str().unwrap()]).good();
    assert!(std::fs::read_to_string(&file).unwrap().contains("workspool_loop_up 0"));
    let said = home.run(["metrics"]).good();
    assert!(said.contains("1 queued") && said.contains("failed: worker_failed"), "{said}");
    assert_eq!(home.run(["metrics", "--json"]).json()["ended"]["ended"]["succeeded"][""], 1);
}

#[test]
fn the_history_is_not_read_for_them() {
    let home = Home::new();
    home.submit("true");
    home.submit("exit 3");
    home.run(["run", "--drain"]).good();
    home.submit("true");
    let figures = || {
        let mut figures = home.run(["metrics", "--json"]).json();
        let changing = ["free_bytes", "active"].map(|name| figures.as_object_mut().unwrap().remove(name));
        (figures, changing[1].as_ref().unwrap()["queued"].clone())
    };
    let before = figures();
    assert_eq!(before.1, 1);
    // With all that has ended out of sight, nothing changes: its number cannot matter.
    for folder in ["done", "tasks"] {
        std::fs::rename(home.spool().join(folder), home.path().join(folder)).unwrap();
        std::fs::create_dir(home.spool().join(folder)).unwrap();
    }
    assert_eq!(figures(), before);
}

#[test]
fn completions_and_manual_pages_name_every_verb() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = home.run(["completions", shell]).good();
        for verb in ["submit", "doctor", "service"] {
            assert!(text.contains(verb), "{verb} in {shell}");
        }
    }
    assert!(home.run(["man"]).good().starts_with(".TH \"WORKSPOOL\" \"1\""));
    let dir = home.path().join("man1");
    home.run(["man", "--write", dir.to_str().unwrap()]).good();
    for page in ["workspool.1", "workspool-doctor.1", "workspool-service-install.1"] {
        let text = std::fs::read_to_string(dir.join(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        assert!(text.contains(".SH SYNOPSIS"), "{page}");
    }
}
