//! `workspool doctor` on the whole.

use super::support::Home;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn a_fresh_spool_has_no_error_and_an_open_one_is_mended() {
    let home = Home::new();
    let said = home.run(["doctor", "--json"]);
    let found = said.json();
    assert!(found.as_array().unwrap().iter().all(|f| f["level"] != "error"), "{found:#}");
    assert_eq!(said.code(), 0);
    for finding in found.as_array().unwrap().iter().filter(|f| f["level"] != "ok") {
        assert!(finding["why"].is_string() && finding["fix"].is_string(), "{finding}");
    }
    std::fs::set_permissions(home.spool(), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(home.run(["doctor"]).code(), 1);
    assert!(home.run(["doctor"]).out().contains("chmod 700"));
    home.run(["doctor", "--fix"]).good();
    assert_eq!(home.spool().metadata().unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_wrong_configuration_does_not_stop_it() {
    let home = Home::new();
    home.write("spool/config.toml", "nonsense = 1\n");
    let said = home.run(["doctor", "--quiet"]);
    assert_eq!(said.code(), 1);
    assert!(said.out().contains("nonsense") && !said.out().contains("ok  "), "{}", said.out());
}

#[test]
fn workspaces_that_git_still_lists_are_unregistered_by_fix() {
    let home = Home::new();
    let git = |args: &[&str]| {
        let mut command = home.command([] as [&str; 0]);
        let mut git = std::process::Command::new("git");
        git.args(args).current_dir(home.path().join("repo")).env_clear();
        git.envs(command.env("GIT_AUTHOR_NAME", "a").get_envs().filter_map(|(k, v)| Some((k, v?))));
        for who in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{who}_NAME"), "a").env(format!("GIT_{who}_EMAIL"), "a@example.org");
        }
        let out = git.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    std::fs::create_dir(home.path().join("repo")).unwrap();
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "first"]);
    let said = home.run(["submit", "echo hi > a.txt", "--repo", "repo", "--worker", "shell"]);
    said.good();
    home.run(["run", "--drain"]).good();
    let listed = git(&["worktree", "list"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    std::fs::remove_dir_all(home.spool().join("worktrees")).unwrap();
    std::fs::create_dir(home.spool().join("worktrees")).unwrap();
    assert!(home.run(["doctor"]).out().contains("still lists 1"), "{}", home.run(["doctor"]).out());
    home.run(["doctor", "--fix"]).good();
    assert_eq!(git(&["worktree", "list"]).lines().count(), 1);
}

#[test]
fn as_a_service_it_has_the_environment_of_one_and_a_task_outlives_its_tick() {
    let home = Home::new();
    // No manager answers: it looks from where cron stands.
    home.program("systemctl", "exit 1");
    home.program("crontab", "exit 1");
    let said = home.run(["doctor", "--as-service", "--json"]);
    let found = said.json();
    let texts: Vec<&str> = found.as_array().unwrap().iter().filter_map(|f| f["what"].as_str()).collect();
    assert!(texts.iter().any(|t| t.contains("(cron)")), "{texts:#?}");
    assert!(texts.iter().any(|t| t.contains("outlives the tick")), "{texts:#?}");
    assert!(texts.iter().any(|t| t.starts_with("git ")), "the checks ran there: {texts:#?}");
    assert_eq!(std::fs::read_dir(home.spool().join("tmp")).unwrap().count(), 0, "nothing is left");
}

#[test]
fn as_a_systemd_service_it_is_started_by_the_manager() {
    let home = Home::new();
    home.program("systemctl", "exit 0");
    // What the manager does with it, without one: the program, in the environment that was given.
    home.recorder("systemd-run", "e=''\nwhile [ \"$1\" != -- ]; do case $1 in --setenv=HOME=*) e=${1#--setenv=} ;; esac; shift; done; shift\nexec env -i \"$e\" PATH=/usr/bin:/bin \"$@\"");
    let said = home.run(["doctor", "--as-service", "--json"]);
    let found = said.json();
    let texts: Vec<&str> = found.as_array().unwrap().iter().filter_map(|f| f["what"].as_str()).collect();
    assert!(
        texts.iter().any(|t| t.contains("(systemd)"))
            && texts.iter().any(|t| t.contains("outlives the tick")),
        "{texts:#?}"
    );
    let calls = home.calls("systemd-run");
    assert_eq!(calls.lines().count(), 2, "{calls}");
    assert!(calls.contains("--user --wait --pipe --collect") && calls.contains("--setenv=PATH="), "{calls}");

    home.program("systemd-run", "echo no bus >&2; exit 1");
    let said = home.run(["doctor", "--as-service"]);
    assert_eq!(said.code(), 1);
    assert!(
        said.out().contains("cannot be started") && said.out().contains("did not outlive"),
        "{}",
        said.out()
    );
}

#[test]
fn what_operating_leaves_in_a_spool_is_nothing_that_check_minds() {
    let home = Home::new();
    home.write("spool/config.toml", "[notify]\ncommand = [\"false\"]\n");
    home.submit("true");
    home.run(["tick", "--log", home.spool().join("logs/service.log").to_str().unwrap()]).good();
    home.run(["run", "--drain"]).good();
    let said = home.run(["check"]);
    assert_eq!(said.code(), 0, "{}{}", said.out(), said.err());
}
