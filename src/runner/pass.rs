//! One pass: everything that can be moved on now is moved on. Nothing is kept in memory that matters.

use super::claim::{self, Claimed};
use crate::intake::{self, Admitted};
use crate::model::{Config, HeldReason, RequestKind, RequestName, TaskId, TimedTicket};
use crate::spool::{Place, Spool, SpoolError, is_empty, names, parsed};
use anyhow::Context as _;
use chrono::Utc;
use std::ffi::OsStr;
use std::process::Child;
use std::time::Duration;

/// For how long a journal is left alone: most have an owner. A file that was just written needs no look each time.
const JOURNALS_REST: Duration = Duration::from_secs(60);

/// What a pass did.
#[derive(Debug, Default)]
pub struct Pass {
    /// Supervisors that were started.
    pub started: Vec<Child>,
    /// What came in by the inboxes.
    pub admitted: Admitted,
    /// What went wrong with single files, tasks, or parts of the pass.
    pub faults: Vec<anyhow::Error>,
    /// Why nothing is started though tasks are queued, if so.
    pub blocked: Option<String>,
    /// When the next thing is due that no event will tell of.
    pub due: Option<Duration>,
}

/// Makes one pass over the spool. A fault of one part never stops the others (I10).
pub fn pass(spool: &Spool, config: &Config) -> Pass {
    let mut pass = Pass { admitted: intake::admit_inboxes(spool, config), ..Pass::default() };
    pass.faults.append(&mut pass.admitted.faults);
    let faults = &mut pass.faults;
    let requests = spool.all_requests().map_err(Into::into);
    by_task(faults, "requests", requests, |name| request(spool, name));
    let releases = names(&spool.releases()).map_err(Into::into);
    by_task(faults, "releasing dependents", releases, |note| release(spool, &note));
    by_task(faults, "held tasks", due_tickets(spool), |(reason, id)| settle(spool, reason, id));
    by_task(faults, "expired tasks", due_timers(spool), |(ms, id)| expire(spool, ms, id));
    part(faults, "journals", || spool.settle_journals(JOURNALS_REST));
    let mut started = Claimed::default();
    let expanded = intake::expand_first(spool, || started = start(spool, config));
    pass.faults.extend(expanded.context("expanding submissions").err());
    pass.faults.append(&mut started.faults);
    (pass.started, pass.blocked) = (started.children, started.blocked);
    part(&mut pass.faults, "notices", || {
        if crate::spool::notices::is_due(spool)? {
            crate::spool::notices::send(spool);
        }
        Ok(())
    });
    if crate::care::retention::is_due(spool, config) {
        crate::care::retention::start(spool);
    }
    pass.due = next_due(spool, pass.admitted.waiting > 0);
    pass
}

/// Starts supervisors: for what nobody holds, and for what may run.
fn start(spool: &Spool, config: &Config) -> Claimed {
    let mut all = Claimed::default();
    if let Err(e) = spool.mark_cut_attempts() {
        all.faults.push(e.context("looking for attempts that a restart cut short"));
        return all;
    }
    for (what, started) in [("recovery", claim::recover(spool)), ("claiming", claim::claim(spool, config))] {
        match started {
            Ok(claimed) => {
                all.children.extend(claimed.children);
                all.faults.extend(claimed.faults);
                all.blocked = all.blocked.take().or(claimed.blocked);
            }
            Err(e) => all.faults.push(e.context(what)),
        }
    }
    all
}

fn part(faults: &mut Vec<anyhow::Error>, what: &'static str, run: impl FnOnce() -> anyhow::Result<()>) {
    if let Err(e) = run().context(what) {
        faults.push(e);
    }
}

/// A part that goes from task to task: one that cannot be moved on does not stop the next (I10).
fn by_task<T>(
    faults: &mut Vec<anyhow::Error>,
    what: &'static str,
    listed: anyhow::Result<Vec<T>>,
    mut move_on: impl FnMut(T) -> anyhow::Result<()>,
) {
    match listed {
        Ok(items) => faults.extend(items.into_iter().filter_map(|item| move_on(item).context(what).err())),
        Err(e) => faults.push(e.context(what)),
    }
}

/// Fulfils a wish about a task that no supervisor holds, or removes one that came too late.
fn request(spool: &Spool, name: RequestName) -> anyhow::Result<()> {
    let locked = match spool.try_lock_task(name.task) {
        Ok(Some(locked)) => locked,
        // Its supervisor or keeper sees to it.
        Ok(None) => return Ok(()),
        // It may be about one that is not expanded yet.
        Err(SpoolError::NoTask(_)) if !is_empty(&spool.intake())? => return Ok(()),
        Err(SpoolError::NoTask(_)) => return Ok(spool.drop_request(name)?),
        Err(e) => return Err(e.into()),
    };
    let found = locked.ticket().with_context(|| format!("task {}", name.task))?;
    let Some(found) = found else { return Ok(()) };
    let (attempt, place) = (found.ticket.attempt, found.place);
    let waits = matches!(place, Place::Queue | Place::Held(..));
    // One that came while its attempt ended, to be repeated by itself, means the repetition too.
    let meant = || attempt <= name.attempt || (attempt == name.attempt + 1 && locked.repeats(attempt));
    if name.kind == RequestKind::Cancel && waits && meant() {
        let reason = spool.read_request(name).and_then(|r| r.reason);
        locked.cancel_waiting(found, reason.as_deref())?;
        drop(locked);
        spool.drop_request(name)?;
        spool.release_dependents(name.task)?;
    } else if attempt > name.attempt || place.state().is_terminal() {
        spool.drop_request(name)?;
    }
    Ok(())
}

/// Looks after an end whose dependents were perhaps not released.
fn release(spool: &Spool, note: &OsStr) -> anyhow::Result<()> {
    let Some(id) = note.to_str().and_then(|n| n.parse::<TaskId>().ok()) else { return Ok(()) };
    // Written before the ticket moves: while its owner is at it, it will do this itself.
    match spool.state_of(id) {
        Ok(state) if state.is_terminal() => spool.release_dependents(id),
        Ok(_) => Ok(()),
        Err(SpoolError::NoTask(_)) => Ok(crate::durable::remove_file(&spool.releases().join(note))?),
        Err(e) => Err(e.into()),
    }
}

/// Tickets whose time has come. Only what is due is touched.
fn due_tickets(spool: &Spool) -> anyhow::Result<Vec<(HeldReason, TaskId)>> {
    let now = now_ms();
    let mut due = Vec::new();
    for reason in [HeldReason::Time, HeldReason::Quota] {
        let timed = parsed::<TimedTicket>(&spool.held(reason))?;
        due.extend(timed.iter().take_while(|t| t.until_ms <= now).map(|t| (reason, t.ticket.task)));
    }
    Ok(due)
}

/// Moves a ticket whose time has come.
fn settle(spool: &Spool, reason: HeldReason, id: TaskId) -> anyhow::Result<()> {
    let Some(locked) = spool.try_lock_task(id)? else { return Ok(()) };
    let found = locked.ticket().with_context(|| format!("task {id}"))?;
    if let Some(found) = found.filter(|f| matches!(f.place, Place::Held(r, Some(_)) if r == reason)) {
        locked.settle(found).with_context(|| format!("task {id}"))?;
    }
    Ok(())
}

/// Timers that have run out.
fn due_timers(spool: &Spool) -> anyhow::Result<Vec<(u64, TaskId)>> {
    let now = now_ms();
    Ok(timer_names(spool)?.into_iter().take_while(|(ms, _)| *ms <= now).collect())
}

/// Ends a queued or held task whose time to start is over.
fn expire(spool: &Spool, ms: u64, id: TaskId) -> anyhow::Result<()> {
    let timer = spool.timers().join(format!("{ms:014}.{id}"));
    let locked = match spool.try_lock_task(id) {
        Ok(Some(locked)) => locked,
        // It runs: it was started in time, and will never expire.
        Ok(None) if spool.find_ticket(id)?.is_some_and(|f| f.place == Place::Running) => {
            return Ok(crate::durable::remove_file(&timer)?);
        }
        Ok(None) => return Ok(()),
        Err(SpoolError::NoTask(_)) if !is_empty(&spool.intake())? => return Ok(()),
        Err(SpoolError::NoTask(_)) => return Ok(crate::durable::remove_file(&timer)?),
        Err(e) => return Err(e.into()),
    };
    let found = locked.ticket().with_context(|| format!("task {id}"))?;
    if let Some(found) = found
        && matches!(found.place, Place::Queue | Place::Held(..))
        && found.ticket.attempt == 1
    {
        let task = locked.task()?;
        let at = task.expires_at.and_then(|at| u64::try_from(at.timestamp_millis()).ok());
        if claim::expired(&task) || at == Some(ms) {
            let message = "expired before it could start";
            locked.end_without_work(found, crate::model::State::Expired, None, message)?;
            drop(locked);
            spool.release_dependents(id)?;
        } else {
            // It was edited since.
            spool.set_timer(&task)?;
        }
    }
    Ok(crate::durable::remove_file(&timer)?)
}

fn timer_names(spool: &Spool) -> anyhow::Result<Vec<(u64, TaskId)>> {
    let mut found: Vec<(u64, TaskId)> = names(&spool.timers())?
        .iter()
        .filter_map(|n| {
            let (ms, id) = n.to_str()?.split_once('.')?;
            Some((ms.parse().ok()?, id.parse().ok()?))
        })
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// How long until something is due that nobody will ring the bell for.
pub fn next_due(spool: &Spool, files_waiting: bool) -> Option<Duration> {
    let now = now_ms();
    let held = [HeldReason::Time, HeldReason::Quota]
        .iter()
        .flat_map(|r| parsed::<TimedTicket>(&spool.held(*r)).unwrap_or_default())
        .map(|t| t.until_ms);
    let timers = timer_names(spool).unwrap_or_default().into_iter().map(|t| t.0);
    let limits = spool.tripped().unwrap_or_default();
    let limits = limits.values().filter_map(|b| u64::try_from(b.until.timestamp_millis()).ok());
    // What is overdue was busy when we came by, and soon is not; what stays so waits for the poll.
    let wait = |ms: u64| match (ms.saturating_sub(now), now.saturating_sub(ms)) {
        (0, late) => (late < 2000).then_some(Duration::from_millis(50)),
        (left, _) => Some(Duration::from_millis(left)),
    };
    let due = held.chain(timers).chain(limits).filter_map(wait).min();
    let files = files_waiting.then_some(Duration::from_millis(500));
    [due, files].into_iter().flatten().min()
}

fn now_ms() -> u64 {
    u64::try_from(Utc::now().timestamp_millis()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::input::Submission;
    use crate::model::task::SubmittedBy;
    use crate::model::{Door, EventKind, State, TaskSpec};
    use crate::spool::LockedTask;
    use chrono::{DateTime, TimeDelta};

    struct Bench {
        _dir: tempfile::TempDir,
        spool: Spool,
        config: Config,
    }

    impl Bench {
        fn new() -> Bench {
            let dir = tempfile::tempdir().unwrap();
            let spool = Spool::open(dir.path()).unwrap();
            let mut config = Config::default();
            (config.disk.reserve_bytes, config.disk.reserve_percent) = (0, 0);
            Bench { _dir: dir, spool, config }
        }

        fn submit(&self, change: impl FnOnce(&mut TaskSpec)) -> TaskId {
            let id = self.submit_only(change);
            intake::expand(&self.spool).unwrap();
            id
        }

        fn submit_only(&self, change: impl FnOnce(&mut TaskSpec)) -> TaskId {
            let mut task = TaskSpec::new("true");
            task.worker = Some("shell".parse().unwrap());
            change(&mut task);
            let by = SubmittedBy { door: Door::Library, client: None, file: None, results: None };
            let one = Submission::One(Box::new(task));
            intake::submit(&self.spool, &self.config, one, by).unwrap()[0].id
        }

        /// Leaves a task as its failed first attempt does that is to be repeated.
        fn repeat(&self, id: TaskId, until: Option<DateTime<Utc>>) {
            let locked = self.spool.lock_task(id).unwrap();
            std::fs::create_dir_all(locked.dir().attempt(1).path()).unwrap();
            locked.event(Some(1), EventKind::Retry { attempt: 2, until }).unwrap();
            let (reason, due) = (HeldReason::Time, Utc::now() + TimeDelta::hours(1));
            let found = locked.ticket().unwrap().unwrap();
            locked.hold(found, reason, Some(due), 2, "").unwrap();
        }

        /// Makes a task run, as far as its ticket and its lock tell.
        fn claim(&self, id: TaskId) -> LockedTask {
            let locked = self.spool.lock_task(id).unwrap();
            let found = locked.ticket().unwrap().unwrap();
            locked.move_ticket(found, Place::Running, found.ticket).unwrap();
            locked
        }

        fn pass(&self) -> Pass {
            pass(&self.spool, &self.config)
        }

        fn state(&self, id: TaskId) -> State {
            self.spool.state_of(id).unwrap()
        }
    }

    #[test]
    fn a_cancel_that_came_as_the_attempt_failed_ends_its_repetition_but_not_one_by_hand() {
        let bench = Bench::new();
        let [repeated, by_hand] = [(); 2].map(|()| bench.submit(|_| {}));
        bench.repeat(repeated, Some(Utc::now()));
        bench.repeat(by_hand, None);
        for id in [repeated, by_hand] {
            bench.spool.request(id, 1, RequestKind::Cancel, None, None).unwrap();
        }
        let done = bench.pass();
        assert!(done.faults.is_empty(), "{:?}", done.faults);
        assert_eq!((bench.state(repeated), bench.state(by_hand)), (State::Cancelled, State::Held));
        assert_eq!(bench.spool.all_requests().unwrap(), []);
    }

    #[test]
    fn a_task_that_runs_past_its_expiry_does_not_keep_the_loop_awake() {
        let bench = Bench::new();
        let id = bench.submit(|task| task.expires = Some(Utc::now() + TimeDelta::hours(1)));
        let _running = bench.claim(id);
        let timer = names(&bench.spool.timers()).unwrap().remove(0);
        let past = format!("{:014}.{id}", now_ms() - 60_000);
        std::fs::rename(bench.spool.timers().join(timer), bench.spool.timers().join(past)).unwrap();
        let done = bench.pass();
        assert!(done.faults.is_empty(), "{:?}", done.faults);
        assert_eq!(done.due, None);
        assert_eq!(names(&bench.spool.timers()).unwrap().len(), 0);
    }

    #[test]
    fn a_dependent_that_runs_already_is_not_waited_for() {
        let bench = Bench::new();
        let need = bench.submit(|_| {});
        let dependent = bench.submit(|task| task.needs = vec![need.to_string()]);
        let _running = bench.claim(dependent);
        let locked = bench.spool.lock_task(need).unwrap();
        let found = locked.ticket().unwrap().unwrap();
        locked.cancel_waiting(found, None).unwrap();
        drop(locked);
        assert_eq!(names(&bench.spool.releases()).unwrap().len(), 1);
        let done = bench.pass();
        assert!(done.faults.is_empty(), "{:?}", done.faults);
        assert_eq!(
            (bench.state(dependent), names(&bench.spool.releases()).unwrap().len()),
            (State::Running, 0)
        );
    }

    #[test]
    fn a_dependent_that_comes_while_its_need_runs_leaves_a_note_that_it_waits() {
        let bench = Bench::new();
        let need = bench.submit(|_| {});
        let running = bench.claim(need);
        // Its supervisor has looked for dependents by now.
        let dependent = bench.submit(|task| task.needs = vec![need.to_string()]);
        assert_eq!(bench.state(dependent), State::Held);
        assert_eq!(names(&bench.spool.releases()).unwrap().len(), 1);
        let found = running.ticket().unwrap().unwrap();
        running.cancel_waiting(found, None).unwrap();
        drop(running);
        let done = bench.pass();
        assert!(done.faults.is_empty(), "{:?}", done.faults);
        assert_eq!(bench.state(dependent), State::Skipped);
        assert_eq!(names(&bench.spool.releases()).unwrap().len(), 0);
    }

    #[test]
    fn a_submission_that_was_expanded_before_does_not_wait_for_its_running_task() {
        let bench = Bench::new();
        let id = bench.submit(|_| {});
        let task = bench.spool.read_task(id).unwrap();
        let _running = bench.claim(id);
        let left = bench.spool.intake().join(format!("{id}.json"));
        let intake = crate::model::Intake { version: crate::model::VERSION, tasks: vec![task] };
        std::fs::write(&left, serde_json::to_vec(&intake).unwrap()).unwrap();
        intake::expand(&bench.spool).unwrap();
        assert!(!left.exists());
        assert_eq!(bench.state(id), State::Running);
    }

    /// I10.
    #[test]
    fn a_broken_submission_holds_up_neither_the_others_nor_the_pass() {
        let bench = Bench::new();
        std::fs::write(bench.spool.intake().join("0.json"), "{").unwrap();
        let good = bench.submit_only(|_| {});
        let mut state = None;
        let done = intake::expand_first(&bench.spool, || state = Some(bench.state(good)));
        assert!(format!("{:#}", done.unwrap_err()).contains("0.json"));
        assert_eq!(state, Some(State::Queued), "before it waits for the disk");
        assert_eq!(names(&bench.spool.intake()).unwrap(), ["0.json"]);

        std::fs::remove_dir_all(bench.spool.intake()).unwrap();
        std::fs::write(bench.spool.intake(), "").unwrap();
        let mut called = false;
        assert!(intake::expand_first(&bench.spool, || called = true).is_err());
        assert!(called, "what fails here stops nothing else");
    }

    /// I1.
    #[test]
    fn a_ticket_whose_record_a_restart_took_stays_where_it_was() {
        let bench = Bench::new();
        let running = bench.submit(|_| {});
        drop(bench.claim(running));
        let soon = Utc::now() + TimeDelta::milliseconds(50);
        let held = bench.submit(|task| task.not_before = Some(soon));
        std::fs::write(bench.spool.lock_path("boot"), "another").unwrap();
        for id in [running, held] {
            let intake = crate::model::Intake {
                version: crate::model::VERSION,
                tasks: vec![bench.spool.read_task(id).unwrap()],
            };
            let path = bench.spool.intake().join(format!("{id}.json"));
            std::fs::write(path, serde_json::to_vec(&intake).unwrap()).unwrap();
            std::fs::remove_dir_all(bench.spool.task(id).path()).unwrap();
        }
        std::thread::sleep((soon - Utc::now()).to_std().unwrap_or_default());
        intake::expand(&bench.spool).unwrap();
        assert_eq!((bench.state(running), bench.state(held)), (State::Running, State::Held));
        assert_eq!(bench.spool.not_ended().unwrap().len(), 2);
        assert_eq!(names(&bench.spool.intake()).unwrap().len(), 0);
    }

    #[test]
    fn a_wish_about_a_task_that_is_not_expanded_yet_waits_for_it() {
        let mut bench = Bench::new();
        bench.config.max_concurrency = 0;
        let id = bench.submit_only(|_| {});
        bench.spool.request(id, 1, RequestKind::Cancel, None, None).unwrap();
        bench.pass();
        bench.pass();
        assert_eq!(bench.state(id), State::Cancelled);
        assert_eq!(bench.spool.all_requests().unwrap(), []);
    }

    #[test]
    fn one_task_that_cannot_be_moved_on_does_not_stop_the_next() {
        let mut bench = Bench::new();
        bench.config.max_concurrency = 0;
        let [bad, good] = [(); 2].map(|()| bench.submit(|_| {}));
        for id in [bad, good] {
            let locked = bench.spool.lock_task(id).unwrap();
            let found = locked.ticket().unwrap().unwrap();
            locked.hold(found, HeldReason::Time, Some(Utc::now()), 1, "").unwrap();
        }
        std::fs::write(bench.spool.task(bad).record(1), "{").unwrap();
        let done = bench.pass();
        assert!(done.faults.iter().any(|e| format!("{e:#}").contains(&bad.to_string())), "{:?}", done.faults);
        assert_eq!(bench.state(good), State::Queued);
        // One that stays so is no reason to look again at once.
        assert!(done.due.is_none_or(|due| due >= Duration::from_millis(50)));
    }
}
