//! The public contract: the files in `queue-schema/` are what the types say, and so are their examples.
//!
//! `UPDATE_SCHEMAS=1 cargo test --test schema` writes the schemas anew.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests, too")]

use jsonschema::Validator;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use workspool::model::input::{self, Submission};
use workspool::model::rejection::ProblemKind;
use workspool::model::{
    Command, Config, Effort, Event, Fact, Intake, Mode, Permission, Profile, Rejection, RepoConfig, Request,
    ReviewFile, Task, TaskResult, TaskSpec, check, schema,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("queue-schema")
}

fn validator(schema: &Value) -> Validator {
    jsonschema::options().should_validate_formats(true).build(schema).unwrap()
}

fn named(name: &str) -> Validator {
    let file = format!("{name}.schema.json");
    let (_, schema) = schema::all().into_iter().find(|(f, _)| *f == file).unwrap();
    validator(&schema)
}

/// Returns the examples of a schema: path, text, and whether it should be valid.
fn examples(name: &str) -> Vec<(PathBuf, Vec<u8>, bool)> {
    let folder = folder().join("examples").join(name);
    let mut found: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let file = path.file_name().unwrap().to_str().unwrap();
            let valid = match file.split_once('-') {
                Some(("valid", _)) => true,
                Some(("invalid", _)) => false,
                _ => panic!("{}: expected valid-… or invalid-…", path.display()),
            };
            let text = fs::read(&path).unwrap();
            (path, text, valid)
        })
        .collect();
    found.sort();
    found
}

/// Whether our own reader takes a text as a `T`.
fn reads_as<T: DeserializeOwned>(text: &[u8]) -> Result<(), String> {
    input::json::<T>(text).map(drop).map_err(|p| p.to_string())
}

/// Whether a submission is read, and nothing in it is out of range.
fn submission(text: &[u8]) -> Result<(), String> {
    let specs = match input::submission(text).map_err(|p| p.to_string())? {
        Submission::One(spec) => vec![*spec],
        Submission::Many(batch) => batch.tasks,
    };
    let wrong = |p: &workspool::model::Problem| p.kind == ProblemKind::Invalid;
    match specs.iter().flat_map(check::check).find(wrong) {
        Some(problem) => Err(problem.to_string()),
        None => Ok(()),
    }
}

/// Our own reader of what a schema describes.
fn ours(name: &str) -> fn(&[u8]) -> Result<(), String> {
    match name {
        "task" | "batch" => submission,
        "worker-profile" => reads_as::<Profile>,
        "config" => reads_as::<Config>,
        "repo-config" => reads_as::<RepoConfig>,
        "intake" => reads_as::<Intake>,
        "task-record" => reads_as::<Task>,
        "receipt" => reads_as::<workspool::model::receipt::Receipt>,
        "result" => reads_as::<TaskResult>,
        "review" => reads_as::<ReviewFile>,
        "event" => reads_as::<Event>,
        "request" => reads_as::<Request>,
        "rejection" => reads_as::<Rejection>,
        "fact" => reads_as::<Fact>,
        other => panic!("no reader is known for {other}"),
    }
}

#[test]
fn the_files_are_what_the_types_say() {
    let update = std::env::var_os("UPDATE_SCHEMAS").is_some();
    let mut expected = BTreeSet::new();
    for (file, schema) in schema::all() {
        let path = folder().join(file);
        let text = schema::to_text(&schema);
        if update {
            fs::write(&path, &text).unwrap();
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == text,
            "{} differs from the types: run `UPDATE_SCHEMAS=1 cargo test --test schema`",
            path.display()
        );
        expected.insert(file.to_owned());
    }
    let there: BTreeSet<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|file| file.ends_with(".schema.json"))
        .collect();
    assert_eq!(there, expected, "a schema that no type has any more");
}

#[test]
fn each_schema_is_a_schema() {
    for (file, schema) in schema::all() {
        jsonschema::draft202012::meta::validate(&schema).unwrap_or_else(|e| panic!("{file}: {e}"));
        validator(&schema);
    }
}

#[test]
fn each_schema_has_examples_of_both_kinds() {
    let mut expected = BTreeSet::new();
    for (file, _) in schema::all() {
        let name = file.strip_suffix(".schema.json").unwrap();
        let examples = examples(name);
        assert!(examples.iter().filter(|(_, _, valid)| *valid).count() >= 2, "{name}");
        assert!(examples.iter().filter(|(_, _, valid)| !*valid).count() >= 2, "{name}");
        expected.insert(name.to_owned());
    }
    let there: BTreeSet<String> = fs::read_dir(folder().join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(there, expected);
}

#[test]
fn an_independent_validator_and_our_reader_agree_on_every_example() {
    let mut wrong = Vec::new();
    for (file, _) in schema::all() {
        let name = file.strip_suffix(".schema.json").unwrap();
        let (validator, reader) = (named(name), ours(name));
        for (path, text, valid) in examples(name) {
            let value: Value = serde_json::from_slice(&text).unwrap();
            let faults: Vec<String> =
                validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
            if faults.is_empty() != valid {
                wrong.push(format!("{}: the validator says {faults:?}", path.display()));
            }
            // Ranges of what is not submitted are the schema's alone.
            match reader(&text) {
                Err(fault) if valid => wrong.push(format!("{}: our reader says {fault}", path.display())),
                Ok(()) if !valid && matches!(name, "task" | "batch") => {
                    wrong.push(format!("{}: our reader takes it", path.display()));
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_invalid_examples_have_one_fault_each() {
    for (file, _) in schema::all() {
        let name = file.strip_suffix(".schema.json").unwrap();
        let validator = named(name);
        for (path, text, valid) in examples(name) {
            let value: Value = serde_json::from_slice(&text).unwrap();
            let places: BTreeSet<String> =
                validator.iter_errors(&value).map(|e| e.instance_path().to_string()).collect();
            assert_eq!(places.len(), usize::from(!valid), "{}: {places:?}", path.display());
        }
    }
}

#[test]
fn records_of_a_newer_version_are_read_and_requests_of_one_are_refused() {
    for name in ["task-record", "result", "review", "rejection", "request"] {
        let (validator, reader) = (named(name), ours(name));
        let (path, text, _) = examples(name).into_iter().find(|(_, _, valid)| *valid).unwrap();
        let mut value: Value = serde_json::from_slice(&text).unwrap();
        value["version"] = json!(2);
        value["from_the_future"] = json!({ "any": ["thing"] });
        assert!(validator.is_valid(&value), "{}", path.display());
        reader(value.to_string().as_bytes()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    for name in ["task", "batch"] {
        let (path, text, _) = examples(name).into_iter().find(|(_, _, valid)| *valid).unwrap();
        let mut value: Value = serde_json::from_slice(&text).unwrap();
        value["version"] = json!(2);
        assert!(!named(name).is_valid(&value), "{}", path.display());
        assert!(submission(value.to_string().as_bytes()).is_err(), "{}", path.display());
    }
}

#[test]
fn what_we_write_of_an_example_is_valid_again() {
    fn again<T: DeserializeOwned + serde::Serialize>(name: &str) {
        let validator = named(name);
        for (path, text, _) in examples(name).into_iter().filter(|(_, _, valid)| *valid) {
            let read: T = serde_json::from_slice(&text).unwrap();
            let written = serde_json::to_value(&read).unwrap();
            if let Err(e) = validator.validate(&written) {
                panic!("{}: {e}", path.display());
            }
        }
    }
    again::<TaskSpec>("task");
    again::<Profile>("worker-profile");
    again::<Config>("config");
    again::<RepoConfig>("repo-config");
    again::<Intake>("intake");
    again::<Task>("task-record");
    again::<TaskResult>("result");
    again::<ReviewFile>("review");
    again::<Event>("event");
    again::<Request>("request");
    again::<Rejection>("rejection");
    again::<Fact>("fact");
    let config = serde_json::to_value(Config::default()).unwrap();
    assert!(named("config").is_valid(&config), "the defaults themselves: {config}");
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        ".{1,20}".prop_map(Command::Shell),
        proptest::collection::vec(".{0,10}", 1..4).prop_map(Command::Argv),
    ]
}

fn spec() -> impl Strategy<Value = TaskSpec> {
    let words = proptest::option::of(".{0,20}");
    let texts = || proptest::collection::vec(".{0,12}", 0..3);
    let who = (
        "(?s).{1,60}",
        words.clone(),
        words,
        proptest::option::of("[A-Za-z0-9][A-Za-z0-9._-]{0,63}"),
        proptest::option::of(proptest::sample::select(Effort::ALL)),
        proptest::option::of(proptest::sample::select(Permission::ALL)),
        proptest::option::of(proptest::sample::select(Mode::ALL)),
    );
    let what = (proptest::collection::vec(command(), 0..3), texts(), texts(), any::<bool>(), any::<bool>());
    let how = (
        proptest::option::of(0u8..=100),
        proptest::option::of(1u64..=366 * 86_400),
        proptest::option::of(0u32..=100),
        proptest::option::of(0f64..1e6),
        proptest::option::of(0i64..4_000_000_000),
        proptest::collection::btree_map(".{0,8}", any::<i32>().prop_map(Value::from), 0..3),
    );
    (who, what, how).prop_map(|(who, what, how)| {
        let mut spec = TaskSpec::new(who.0);
        (spec.title, spec.context) = (who.1, who.2);
        spec.worker = who.3.map(|name| name.parse().unwrap());
        (spec.effort, spec.permission, spec.mode) = (who.4, who.5, who.6);
        (spec.verify, spec.constraints, spec.acceptance) = (what.0, what.1, what.2);
        (spec.hold, spec.no_network) = (what.3, what.4);
        (spec.priority, spec.timeout, spec.retries) = (how.0, how.1, how.2);
        spec.budget.cost_usd = how.3;
        spec.not_before = how.4.and_then(|s| chrono::DateTime::from_timestamp(s, 0));
        spec.metadata = how.5;
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_task_that_we_can_write_is_valid_and_reads_back(specs in proptest::collection::vec(spec(), 4)) {
        // Building the validator costs more than using it.
        static TASK: LazyLock<Validator> = LazyLock::new(|| named("task"));
        for spec in specs {
            let value = serde_json::to_value(&spec).unwrap();
            if let Err(e) = TASK.validate(&value) {
                prop_assert!(false, "{} in {}", e, value);
            }
            let back: TaskSpec = serde_json::from_value(value).unwrap();
            prop_assert_eq!(&back, &spec);
        }
    }
}
