//! Rules for changed paths: patterns of any kind are refused or compiled; what is forbidden stays forbidden;
//! a link never leads out unseen.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use std::path::{Component, Path};
use workspool::model::{Permission, TaskSpec};
use workspool::workspace::Rules;

#[derive(Debug, Arbitrary)]
struct Input {
    allow: Vec<String>,
    forbid: Vec<String>,
    protect: Vec<String>,
    path: String,
    link: Option<String>,
}

fuzz_target!(|input: Input| {
    let path = Path::new(&input.path);
    if !path.components().all(|part| matches!(part, Component::Normal(_))) || input.path.is_empty() {
        return;
    }
    let mut spec = TaskSpec::new("x");
    (spec.allow, spec.forbid) = (input.allow, input.forbid);
    let Ok(rules) = Rules::new(&spec, &input.protect) else { return };
    let link = input.link.as_ref().map(Path::new);
    let verdict = rules.violation(path, link);
    if spec.permission() == Permission::Full {
        return;
    }
    // An absolute target always leads out.
    if link.is_some_and(Path::is_absolute) {
        assert!(verdict.is_some(), "a link to {link:?} passes");
    }
    // The path's own name as a pattern forbids it.
    if !input.path.contains(['*', '?', '[', ']', '{', '}', '\\', '!']) {
        spec.forbid.push(input.path.clone());
        if let Ok(stricter) = Rules::new(&spec, &input.protect) {
            assert!(stricter.violation(path, link).is_some(), "{path:?} is forbidden by name and passes");
        }
    }
});
