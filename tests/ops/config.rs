//! `workspool config`: what holds, where it comes from, what is wrong.

use super::support::Home;

fn setting(home: &Home, args: &[&str], key: &str) -> (serde_json::Value, String) {
    let said = home.run([args, &["config", "show", "--json"]].concat()).json();
    let all = said["settings"].as_array().unwrap().clone();
    let one = all.iter().find(|s| s["key"] == key).unwrap();
    (one["value"].clone(), one["source"].as_str().unwrap().to_owned())
}

#[test]
fn a_flag_goes_before_a_variable_and_that_before_the_file_and_that_before_the_default() {
    let home = Home::new();
    assert_eq!(setting(&home, &[], "max_concurrency"), (4.into(), "default".into()));
    home.write("spool/config.toml", "max_concurrency = 5\n[defaults]\ntimeout = 60\n");
    assert_eq!(setting(&home, &[], "max_concurrency"), (5.into(), "file".into()));
    assert_eq!(setting(&home, &[], "defaults.timeout"), (60.into(), "file".into()));
    assert_eq!(setting(&home, &[], "defaults.retries").1, "default");
    assert_eq!(
        setting(&home, &[], "disk.reserve_bytes"),
        (0.into(), "environment".into()),
        "as the tests set it"
    );
    let with = |args: &[&str]| {
        let mut command = home.command(args);
        super::support::Said(command.env("WORKSPOOL_MAX_CONCURRENCY", "6").output().unwrap())
    };
    let said = with(&["config", "show", "max_concurrency"]).good();
    assert!(said.contains("6") && said.contains("environment"), "{said}");
    let said = with(&["--set", "max_concurrency=7", "config", "show", "max_concurrency"]).good();
    assert!(said.contains("7") && said.contains("flag"), "{said}");
    let said = home.run(["config", "show", "--changed"]).good();
    assert!(said.contains("max_concurrency") && !said.contains("poll"), "{said}");
}

#[test]
fn the_value_that_holds_is_the_one_that_is_used() {
    let home = Home::new();
    home.write("spool/config.toml", "default_worker = \"mock\"\n");
    let id = home.run(["--set", "default_worker=shell", "submit", "true", "--json"]).good();
    assert!(id.contains("id"));
    let list = home.run(["show", id.split('"').find(|w| w.len() == 26).unwrap(), "--json"]).good();
    assert!(list.contains("\"shell\""), "{list}");
}

#[test]
fn unknown_keys_are_errors_with_line_and_nearest_name() {
    let home = Home::new();
    home.write("spool/config.toml", "poll = 5\n\n[disk]\nreserve_byte = 1\n");
    let said = home.run(["config", "check"]);
    assert_eq!(said.code(), 8, "{}", said.out());
    assert!(
        said.out().contains('4') && said.out().contains("did you mean `reserve_bytes`?"),
        "{}",
        said.out()
    );
    // Whatever reads it says the same.
    let said = home.run(["list"]);
    assert_eq!(said.code(), 8);
    assert!(said.err().contains("reserve_bytes"), "{}", said.err());
    let said = home.run(["--set", "pol=5", "config", "show"]);
    assert_eq!(said.code(), 8);
    assert!(said.err().contains("did you mean poll?"), "{}", said.err());
    let said = home.run(["--set", "poll=often", "config", "show"]);
    assert!(said.code() != 0);
}

#[test]
fn a_variable_that_is_nearly_one_of_ours_is_told() {
    let home = Home::new();
    let mut command = home.command(["config", "check"]);
    let said = super::support::Said(command.env("WORKSPOOL_MAX_CONCURENCY", "2").output().unwrap()).good();
    assert!(said.contains("WORKSPOOL_MAX_CONCURRENCY was meant"), "{said}");
}

#[test]
fn a_first_file_says_the_defaults_and_nothing_is_written_over() {
    let home = Home::new();
    let before = home.run(["config", "show", "--json"]).json();
    home.run(["config", "init"]).good();
    home.run(["config", "check"]).good();
    let after = home.run(["config", "show", "--json"]).json();
    for (a, b) in before["settings"].as_array().unwrap().iter().zip(after["settings"].as_array().unwrap()) {
        assert_eq!(a["value"], b["value"], "{}", a["key"]);
    }
    home.write("spool/config.toml", "poll = 9\n");
    let said = home.run(["config", "init"]);
    assert_eq!(said.code(), 6);
    assert_eq!(std::fs::read_to_string(home.spool().join("config.toml")).unwrap(), "poll = 9\n");
}
