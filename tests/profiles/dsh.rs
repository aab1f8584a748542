//! DeepSeek Harness, as a script that behaves as version 0.1.0-rc.8 did: what it is asked, and what its
//! words mean. The real one is run by `scripts/e2e-workers dsh`, where it is installed.

use super::programs::put;
use super::support::World;
use std::fs;
use workspool::model::{Class, Permission, State};

const DSH: &str = r#"
[ "$1" = --version ] && { echo 0.1.0-rc.8; exit 0; }
[ "$1 $2" = '--profile headless' ] || { echo 'error: no profile' >&2; exit 1; }
shift 2
while :; do
    case $1 in
        --dump-config)
            printf -- "- id: agent\n  name: '@deepseek-ai/dsh-agent'\n- id: agent-default-model\n  config:\n    provider: 'deepseek-official'\n    model: deepseek-v4-flash\n- id: jobs\n"
            exit 0 ;;
        --patch) cat "$2" >> patches.txt; shift 2 ;;
        *) break ;;
    esac
done
[ "$1 $2" = '-- --' ] || { echo 'error: unknown option' >&2; exit 1; }
[ -f "$HOME/fail" ] && { cat "$HOME/fail" >&2; exit 1; }
printf '%s' "$3" > prompt.txt
echo "$DSH_PERMISSION_MODE $DSH_TELEMETRY_DISABLED" > mode.txt
echo 'all done'
"#;

fn world() -> World {
    let world = World::new();
    let bin = world.root().join("bin");
    put(&bin, "dsh", DSH);
    let path = std::env::var("PATH").unwrap();
    world.set_env("PATH", &format!("{}:{path}", bin.display()));
    world
}

#[test]
fn the_prompt_stands_last_and_nothing_is_patched_unless_asked() {
    let world = world();
    let repo = world.repo("r");
    let id = world.submit("--dump the objective").repo(&repo).worker("dsh").ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(result.worker.version.as_deref(), Some("0.1.0-rc.8"));
    assert_eq!(result.summary.as_deref(), None, "text has no last word to be told from the rest");
    let branch = result.branch.unwrap();
    assert!(repo.show(&branch, "prompt.txt").contains("--dump the objective"));
    assert_eq!(repo.show(&branch, "mode.txt"), "workspace-write 1\n");
    assert!(!repo.files(&branch).contains(&"patches.txt".to_owned()));
    let by: Vec<_> = result.restrictions.iter().map(|r| (r.what.as_str(), r.enforced_by.as_str())).collect();
    assert_eq!(by, [("workspace_write", "dsh"), ("workspace_write", "workspool")]);
}

#[test]
fn a_model_goes_into_an_overlay_with_the_provider_that_dsh_has() {
    let world = world();
    let repo = world.repo("r");
    let id = world.submit("x").repo(&repo).worker("dsh").with("model", "m\"1").flag("no-shell").ok();
    world.drain();
    let result = world.succeeded(id);
    let patches = repo.show(&result.branch.unwrap(), "patches.txt");
    let mut patches = patches.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let model = &patches.next().unwrap()[0];
    assert_eq!(model["id"], "agent-default-model");
    assert_eq!(model["config"], serde_json::json!({ "provider": "deepseek-official", "model": "m\"1" }));
    assert_eq!(patches.next().unwrap()[0]["id"], "tool-bash");
    assert!(result.restrictions.iter().any(|r| r.what == "no_shell" && r.enforced_by == "dsh"));
}

#[test]
fn a_setting_that_would_take_the_models_place_is_told_and_not_put_up_with() {
    let world = world();
    let settings = world.home().join(".dsh/settings.yaml");
    fs::create_dir_all(settings.parent().unwrap()).unwrap();
    fs::write(settings, "agent-default-model:\n  provider: x\n  model: y\n").unwrap();
    let repo = world.repo("r");
    let asks = world.submit("x").repo(&repo).worker("dsh").with("model", "m").ok();
    let leaves_it = world.submit("x").repo(&repo).worker("dsh").ok();
    world.drain();
    let result = world.result(asks);
    assert_eq!(result.state, State::Failed);
    assert!(result.message.contains("has an entry agent-default-model"), "{}", result.message);
    world.succeeded(leaves_it);
}

#[test]
fn what_it_says_on_its_standard_error_is_understood() {
    let world = world();
    for (said, class) in [
        ("dsh: AUTH: invalid x-api-key\n", Class::Auth),
        ("dsh: CONTEXT_WINDOW_EXCEEDED: too long\n", Class::ContextFull),
    ] {
        fs::write(world.home().join("fail"), said).unwrap();
        let id = world.submit("x").worker("dsh").with("retries", "0").ok();
        world.drain();
        assert_eq!(world.result(id).class, Some(class));
    }
}

#[test]
fn a_repository_cannot_set_its_environment() {
    let world = world();
    let repo = world.repo("r");
    repo.write(".env", "DEEPSEEK_BASE_URL=http://evil.example\n").git(&["add", "-f", ".env"]);
    repo.commit("env");
    let id =
        world.submit("x").repo(&repo).worker("dsh").with("permission", Permission::ReadOnly.as_str()).ok();
    world.drain();
    let result = world.result(id);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::Permission)));
    assert!(result.message.contains(".env"), "{}", result.message);
}
