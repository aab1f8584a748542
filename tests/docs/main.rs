//! Documentation that is made from the program must be what the program says.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests, too")]

mod examples;
mod words;

use std::fs;
use std::path::Path;

#[test]
fn the_reference_of_the_command_line_is_what_help_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    let now = workspool::cli::reference::reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &now).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == now, "docs/cli.md is not what --help says: UPDATE_DOCS=1 cargo test --test docs");
}

#[test]
fn links_between_pages_lead_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages =
        vec![root.join("README.md"), root.join("CHANGELOG.md"), root.join("queue-schema/README.md")];
    for folder in ["docs", "docs/decisions"] {
        pages.extend(
            fs::read_dir(root.join(folder))
                .unwrap()
                .map(|e| e.unwrap().path())
                .filter(|p| p.extension().is_some_and(|e| e == "md")),
        );
    }
    let mut broken = Vec::new();
    for page in pages.iter().filter(|p| p.is_file()) {
        let text = fs::read_to_string(page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            if !page.parent().unwrap().join(file).exists() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
