//! `workspool exec`: the life of a supervisor. Internal; started by a runner or by a keeper.
//!
//! It carries the attempt that it was started for. Then, as long as the loop that was awake at its start is, it
//! claims the next ticket itself: a process less for each task. It records the end of the one while the command of
//! the next one runs. A loop that was stopped or that died, and a
//! single pass, have no supervisors that go on.

use super::{Awake, claim, presence};
use crate::attempt::{self, Order, Outstanding};
use crate::spool::{Found, Journal, LockedTask, Spool, config, is_empty};
use crate::workspace::overlay;
use anyhow::Context as _;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::rc::Rc;

/// Attempts that one supervisor carries at most: an update of this program gets its turn.
const MOST: u32 = 100;

/// Carries the attempt that the arguments name, and those that come after it.
pub fn exec(args: impl Iterator<Item = OsString>) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("workspool exec: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let mut args = args.peekable();
    if args.next_if(|first| first == "--probe-overlay").is_some() {
        return overlay::probe_here(Path::new(&args.next().context("a folder is missing")?));
    }
    let order = Order::parse(args)?;
    let spool = order.spool()?;
    let master = presence::awake(&spool)?;
    if master.is_none() {
        let done = order.carry_out(&spool).map(|carried| carried.iter().for_each(Outstanding::record));
        attempt::clear_litter();
        return done;
    }
    // The loop hears of an end when the next ticket is taken: it would only run for it too.
    Spool::hold_bell_back();
    let journal = Rc::new(Journal::of(&spool));
    let done = carry_all(&spool, order, &master, &journal);
    spool.ring_owed();
    attempt::clear_litter();
    done.and(journal.settle())
}

fn carry_all(
    spool: &Spool,
    order: Order,
    master: &Option<Awake>,
    journal: &Rc<Journal>,
) -> anyhow::Result<()> {
    let Some(carried) = order.carry_out(spool)? else { return Ok(()) };
    let mut last = Rc::new(carried);
    let mut handed_on = Vec::new();
    for _ in 1..MOST {
        // What it sees is not what others see.
        if attempt::is_enclosed() {
            break;
        }
        if presence::awake(spool)? != *master {
            break;
        }
        let Some((locked, found)) = next(spool, &last, journal)? else { break };
        last.goes_into(journal);
        spool.ring_owed();
        if attempt::wants_own(&locked, found.ticket.attempt) {
            last.record();
            handed_on.push(attempt::spawn(locked, found.ticket.attempt)?);
            super::reap(&mut handed_on);
            continue;
        }
        last = Rc::new(attempt::carry(locked, found, None, last)?);
    }
    last.record();
    Ok(())
}

/// Claims what comes after an attempt: if something may run before its end is recorded, that can wait a moment.
fn next(
    spool: &Spool,
    last: &Outstanding,
    journal: &Rc<Journal>,
) -> anyhow::Result<Option<(LockedTask, Found)>> {
    let config = config::load(spool)?;
    if let Some(ticket) = last.ticket() {
        match claim::next(spool, &config, Some(ticket))? {
            None => {
                if !is_empty(&spool.queue())? {
                    last.goes_into(journal);
                }
                last.record();
            }
            claimed => return Ok(claimed),
        }
    }
    let claimed = claim::next_in_turn(spool, &config)?;
    if claimed.is_none() {
        // The loop may have left it to us.
        spool.ring();
    }
    Ok(claimed)
}
