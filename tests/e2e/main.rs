//! The real programs, through the whole of workspool, against a scripted model server.
//!
//! Each test is ignored unless asked for: `scripts/e2e-workers` installs the programs at the versions that
//! were tried and runs them. `WORKSPOOL_E2E_BIN` names the folder with the programs.

#![allow(clippy::unwrap_used, reason = "a test may panic anywhere, also in its helpers")]

#[path = "../modelserver/mod.rs"]
mod modelserver;
#[allow(dead_code, unused_imports, reason = "each test crate that includes this uses a part of it")]
#[path = "../spec/support/mod.rs"]
mod support;

mod bench;
mod cases;
mod planners;

/// All cases for one program.
macro_rules! program {
    ($name:ident: $($case:ident),+ $(,)?) => {
        mod $name {
            $(
                #[test]
                #[ignore = "needs the real program: scripts/e2e-workers"]
                fn $case() {
                    super::cases::$case(&super::bench::Bench::new(stringify!($name)));
                }
            )+
        }
    };
}

program!(claude: write, refused, limited, broken, hang, cancel, read_only, no_shell, four_at_once, long_prompt, repair, revise, lost_session, untrusted);
program!(codex: write, refused, limited, broken, hang, cancel, read_only, four_at_once, long_prompt, repair, revise, lost_session, untrusted, no_network);
program!(opencode: write, refused, limited, broken, hang, cancel, read_only, no_shell, four_at_once, long_prompt, repair, revise, lost_session, untrusted);
program!(gemini: write, refused, limited, broken, hang, cancel, read_only, no_shell, four_at_once, long_prompt, repair, revise, lost_session, untrusted);
program!(qwen: write, refused, limited, broken, hang, cancel, read_only, no_shell, four_at_once, long_prompt, repair, revise, lost_session, untrusted);
program!(copilot: write, refused, hang, cancel, read_only, no_shell, four_at_once, repair, revise, untrusted);
program!(dsh: write, refused, limited, broken, hang, cancel, read_only, no_shell, four_at_once, repair, model, untrusted);
program!(aider: write, refused, hang, read_only, untrusted);
