//! Which changed paths a task may have changed.

use crate::model::{Permission, TaskSpec};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::path::{Component, Path, PathBuf};

/// The rules for one task's changes.
#[derive(Debug)]
pub struct Rules {
    permission: Permission,
    allow: Option<GlobSet>,
    forbid: GlobSet,
    protected: GlobSet,
}

/// A changed path that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The path.
    pub path: PathBuf,
    /// The rule, in words.
    pub rule: String,
}

impl Rules {
    /// Makes the rules of a task and its repository.
    pub fn new(spec: &TaskSpec, protected: &[String]) -> Result<Self, globset::Error> {
        Ok(Rules {
            permission: spec.permission(),
            allow: if spec.allow.is_empty() { None } else { Some(set(&spec.allow)?) },
            forbid: set(&spec.forbid)?,
            protected: set(protected)?,
        })
    }

    /// Says which rule a change of `path` breaks, if any. A link that leads out of the workspace is given
    /// with its target.
    pub fn violation(&self, path: &Path, link: Option<&Path>) -> Option<Violation> {
        let broken = |rule: String| Some(Violation { path: path.to_owned(), rule });
        if self.permission == Permission::Full {
            return None;
        }
        if self.forbid.is_match(path) {
            return broken("the task forbids changes to it".into());
        }
        let allowed = self.allow.as_ref().map(|allow| allow.is_match(path));
        if self.protected.is_match(path) && allowed != Some(true) {
            return broken(
                "the repository protects it (.workspool.toml), and the task does not allow it by name".into(),
            );
        }
        if self.permission == Permission::Custom && allowed == Some(false) {
            return broken("the task does not allow changes to it".into());
        }
        if let Some(target) = link.filter(|target| leaves(path, target)) {
            return broken(format!("it is a link out of the workspace, to {}", target.display()));
        }
        None
    }
}

/// Whether a link at `path` leads out of the folder that `path` is relative to.
pub(super) fn leaves(path: &Path, target: &Path) -> bool {
    if target.is_absolute() {
        return true;
    }
    let mut depth = path.components().count().saturating_sub(1);
    for part in target.components() {
        match part {
            Component::ParentDir if depth == 0 => return true,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            _ => {}
        }
    }
    false
}

/// A set of patterns: `*` stays inside a folder, `**` does not; a folder's name stands for all in it.
pub fn set(patterns: &[String]) -> Result<GlobSet, globset::Error> {
    let mut builder = GlobSetBuilder::new();
    for pattern in patterns {
        let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
        let pattern = pattern.strip_suffix('/').unwrap_or(pattern);
        for text in [pattern.to_owned(), format!("{pattern}/**")] {
            builder.add(GlobBuilder::new(&text).literal_separator(true).build()?);
        }
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(json: &str, protected: &[&str]) -> Rules {
        let spec: TaskSpec = serde_json::from_str(json).unwrap();
        Rules::new(&spec, &protected.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn broken(rules: &Rules, path: &str) -> bool {
        rules.violation(Path::new(path), None).is_some()
    }

    #[test]
    fn custom_allows_and_forbids_by_pattern() {
        let r = rules(
            r#"{"objective": "x", "permission": "custom", "allow": ["src/**", "docs"], "forbid": ["src/secret*"]}"#,
            &[],
        );
        assert!(!broken(&r, "src/a/b.rs"));
        assert!(!broken(&r, "docs/x/y.md"));
        assert!(broken(&r, "src/secret.rs"));
        assert!(broken(&r, "Cargo.toml"));
    }

    #[test]
    fn protected_paths_need_to_be_allowed_by_name() {
        let plain = rules(r#"{"objective": "x"}"#, &["tests/", "*.lock"]);
        assert!(broken(&plain, "tests/a.rs"));
        assert!(broken(&plain, "Cargo.lock"));
        assert!(!broken(&plain, "src/a.rs"));
        let named = rules(r#"{"objective": "x", "permission": "custom", "allow": ["tests/**"]}"#, &["tests"]);
        assert!(!broken(&named, "tests/a.rs"));
    }

    #[test]
    fn links_out_of_the_workspace_are_found() {
        let r = rules(r#"{"objective": "x"}"#, &[]);
        let leads_out =
            |path: &str, target: &str| r.violation(Path::new(path), Some(Path::new(target))).is_some();
        assert!(leads_out("a", "/etc/passwd"));
        assert!(leads_out("a/b", "../../x"));
        assert!(!leads_out("a/b", "../x"));
        assert!(!leads_out("a", "b/../c"));
        assert!(leads_out("a", "b/../../c"));
    }

    #[test]
    fn full_permission_has_no_rules() {
        let r = rules(r#"{"objective": "x", "permission": "full", "forbid": ["a"]}"#, &["a"]);
        assert!(!broken(&r, "a"));
    }

    #[test]
    fn a_link_leads_out_if_it_leaves_at_any_point() {
        let out = |link: &str, target: &str| leaves(Path::new(link), Path::new(target));
        assert!(out("a", "/etc") && out("a", "../b") && out("d/a", "../../b") && out("d/a", "x/../../../b"));
        assert!(!out("a", "b") && !out("d/a", "../b") && !out("d/e/a", "../../b") && !out("a", "x/../b"));
    }

    mod random {
        use super::*;
        use proptest::prelude::*;

        /// Patterns of all kinds: globs, paths, rubbish.
        fn pattern() -> impl Strategy<Value = String> {
            prop_oneof![
                "[a-c/*?]{1,8}",
                "(a|b|\\*\\*|\\{a,b\\}|\\[a-b\\]|!|\\.\\.)(/(a|b|\\*)){0,3}",
                ".{0,12}"
            ]
        }

        proptest! {
            #[test]
            fn what_is_forbidden_by_name_stays_so(
                allow in prop::collection::vec(pattern(), 0..3),
                forbid in prop::collection::vec(pattern(), 0..3),
                protect in prop::collection::vec(pattern(), 0..3),
                path in "[a-c. ]{1,3}(/[a-c]{1,3}){0,3}",
                link in prop::option::of(".{0,12}"),
            ) {
                let part = |p: std::path::Component<'_>| matches!(p, std::path::Component::Normal(_));
                prop_assume!(Path::new(&path).components().all(part));
                let mut spec = TaskSpec::new("x");
                (spec.allow, spec.forbid) = (allow, forbid);
                let link = link.as_deref().map(Path::new);
                if let Ok(rules) = Rules::new(&spec, &protect)
                    && spec.permission() != crate::model::Permission::Full
                    && link.is_some_and(Path::is_absolute)
                {
                    prop_assert!(rules.violation(Path::new(&path), link).is_some(), "a link to {link:?} passes");
                }
                spec.forbid.push(path.clone());
                if let Ok(rules) = Rules::new(&spec, &protect)
                    && spec.permission() != crate::model::Permission::Full
                {
                    prop_assert!(rules.violation(Path::new(&path), link).is_some(), "{path:?} passes");
                }
            }
        }
    }
}
