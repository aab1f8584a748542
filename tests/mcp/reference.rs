//! The reference in `docs/mcp.md` is what the server says.

use std::path::Path;

const BEGIN: &str =
    "<!-- from here on made from the server itself: UPDATE_DOCS=1 cargo test --test mcp reference -->\n";

#[test]
fn the_documented_tools_are_the_tools() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/mcp.md");
    let text = std::fs::read_to_string(&file).unwrap();
    let (before, documented) = text.split_once(BEGIN).expect("the mark is there");
    let made = format!("\n{}", workspool::mcp::reference());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, format!("{before}{BEGIN}{made}")).unwrap();
        return;
    }
    assert!(documented == made, "docs/mcp.md is out of date: UPDATE_DOCS=1 cargo test --test mcp reference");
}
