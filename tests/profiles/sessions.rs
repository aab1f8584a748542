//! Continuing a session, and what happens where it is not there any more.

use super::programs::put;
use super::support::World;
use serde_json::json;
use std::fs;

/// Speaks Claude Code's format and keeps its sessions as files.
const AGENT: &str = r#"
case $1 in
    --new) session=$2; echo begun > "$SESSIONS/$session" ;;
    --continue)
        session=$2
        if ! [ -f "$SESSIONS/$session" ]; then
            echo '{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"'$session'","errors":["No conversation found with session ID: '$session'"]}'
            exit 1
        fi ;;
esac
cat > prompt.txt
echo "$1" >> how.txt
echo '{"type":"system","subtype":"init","session_id":"'$session'"}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"did it","session_id":"'$session'"}'
"#;

fn world() -> World {
    let world = World::new();
    let agent = put(&world.root().join("tools"), "agent", AGENT);
    let sessions = world.root().join("sessions");
    fs::create_dir(&sessions).unwrap();
    let profile = json!({
        "name": "agent", "command": [agent], "output": "claude", "env": { "SESSIONS": sessions },
        "session": ["--new", "{session}"], "resume": ["--continue", "{session}"]
    });
    let file = world.root().join("agent.json");
    fs::write(&file, profile.to_string()).unwrap();
    world.run(&["workers", "link", "--file", &file.to_string_lossy()]).ok();
    world
}

fn forget(world: &World) {
    for entry in fs::read_dir(world.root().join("sessions")).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

#[test]
fn a_revision_whose_session_is_gone_begins_anew_with_what_was_reported() {
    let world = world();
    let repo = world.repo("r");
    let id = world.submit("the objective").repo(&repo).worker("agent").ok();
    world.drain();
    let first = world.succeeded(id);
    forget(&world);
    world.on("revise", id, &["--feedback", "one more thing"]).ok();
    world.drain();
    let second = world.succeeded(id);
    assert_ne!(second.worker.session, first.worker.session);
    assert!(second.warnings.iter().any(|w| w.contains("was not found any more")), "{:?}", second.warnings);
    let branch = second.branch.unwrap();
    assert_eq!(repo.show(&branch, "how.txt"), "--new\n--new\n");
    let prompt = repo.show(&branch, "prompt.txt");
    for part in ["the objective", "one more thing", "did it"] {
        assert!(prompt.contains(part), "{part} is not in {prompt}");
    }

    // The new session is the one that is continued from then on.
    world.on("revise", id, &["--feedback", "and another"]).ok();
    world.drain();
    let third = world.succeeded(id);
    assert_eq!(third.worker.session, second.worker.session);
    assert_eq!(repo.show(&branch, "how.txt"), "--new\n--new\n--continue\n");
}

#[test]
fn a_repair_whose_session_is_gone_begins_anew_with_the_evidence() {
    let world = world();
    let repo = world.repo("r");
    let sessions = world.root().join("sessions");
    let mark = world.root().join("seen");
    let gate = format!(
        "test -e {m} || {{ rm -f {s}/*; touch {m}; echo the evidence; exit 3; }}",
        m = mark.display(),
        s = sessions.display()
    );
    let id = world.submit("the objective").repo(&repo).worker("agent").verify(&gate).with("repair", "1").ok();
    world.drain();
    let result = world.succeeded(id);
    let branch = result.branch.unwrap();
    assert_eq!(repo.show(&branch, "how.txt"), "--new\n--new\n");
    let prompt = repo.show(&branch, "prompt.txt");
    assert!(prompt.contains("the objective") && prompt.contains("the evidence"), "{prompt}");
    assert!(prompt.contains("1 of 1"), "{prompt}");
}
