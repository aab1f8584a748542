//! Installing a service, and telling of an end, with our process killed at every point.

use super::support::{Home, until};
use std::os::unix::process::ExitStatusExt as _;

#[test]
fn an_installation_that_was_cut_short_can_be_taken_away() {
    let own = "5 4 * * * backup\n";
    for k in 1.. {
        let home = Home::new();
        let table = home.path().join("table");
        std::fs::write(&table, own).unwrap();
        home.program(
            "crontab",
            &format!("case $1 in -l) cat '{0}' ;; -) cat > '{0}' ;; esac", table.display()),
        );
        home.run(["status"]).good();
        let mut command = home.command(["service", "install", "--kind", "cron", "--yes"]);
        let said = command.env("WORKSPOOL_FAULT", format!("{k}:kill")).output().unwrap();
        let killed = said.status.signal().is_some();
        let recorded = home.spool().join("service.json").exists();
        if std::fs::read_to_string(&table).unwrap() != own || home.spool().join("service.sh").exists() {
            assert!(recorded, "point {k}: something was made that is not recorded");
        }
        let undone = home.run(["service", "uninstall"]);
        assert_eq!(undone.code(), if recorded { 0 } else { 4 }, "point {k}: {}", undone.err());
        assert_eq!(std::fs::read_to_string(&table).unwrap(), own, "point {k}");
        assert!(!home.spool().join("service.sh").exists(), "point {k}");
        if !killed {
            assert!(k > 10, "there are more points than {k}");
            return;
        }
    }
}

#[test]
fn an_end_is_told_and_counted_wherever_a_process_dies() {
    for k in 1.. {
        let home = Home::new();
        home.recorder("tell", "");
        home.write("spool/config.toml", "[notify]\ncommand = [\"tell\", \"{event}\"]\n");
        let id = home.submit("true");
        home.run(["hold", &id]).good();
        home.run(["edit", &id, "--expires", "2020-01-01T00:00:00Z"]).good();
        // Ends within the tick itself: the only process that can be killed.
        let mut command = home.command(["release", &id]);
        drop(command.output().unwrap());
        let mut command = home.command(["tick"]);
        let killed =
            command.env("WORKSPOOL_FAULT", format!("{k}:kill")).output().unwrap().status.signal().is_some();
        until("the end", || {
            home.run(["tick"]);
            home.run(["show", &id, "--json"]).out().contains("\"expired\"").then_some(())
        });
        until("the wish to go", || {
            home.run(["tick"]);
            let left = std::fs::read_dir(home.spool().join("notices")).is_ok_and(|d| {
                d.filter(|e| !e.as_ref().unwrap().file_name().as_encoded_bytes().starts_with(b".")).count()
                    > 0
            });
            (!left).then_some(())
        });
        assert!(home.calls("tell").contains("failed"), "point {k}: nobody was told");
        let counted =
            home.run(["metrics", "--json"]).json()["ended"]["ended"]["expired"][""].as_u64().unwrap_or(0);
        // A death right after the move loses the count; none is counted twice.
        assert!(counted <= 1 && (killed || counted == 1), "point {k}: counted {counted} times");
        if !killed {
            assert!(k > 10, "there are more points than {k}");
            return;
        }
    }
}
