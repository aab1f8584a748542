//! What anybody may put into the inbox or hand to `submit`: it is refused with a reason or read, never a
//! panic, and what was read is written and read again as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use workspool::model::TaskSpec;
use workspool::model::check::{check, is_inside};
use workspool::model::input::{Submission, submission};

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = submission(bytes) else { return };
    let specs: Vec<TaskSpec> = match read {
        Submission::One(spec) => vec![*spec],
        Submission::Many(batch) => batch.tasks,
    };
    for spec in specs {
        let problems = check(&spec);
        if let Some(subdir) = &spec.subdir
            && !is_inside(subdir)
        {
            assert!(!problems.is_empty(), "a folder outside passes: {subdir:?}");
        }
        let written = serde_json::to_vec(&spec).expect("what was read can be written");
        let again: TaskSpec = serde_json::from_slice(&written).expect("what was written can be read");
        assert_eq!(again, spec);
    }
});
