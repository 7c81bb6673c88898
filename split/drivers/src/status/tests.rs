//! Status sockets: errors of opening one, and which users get an answer.

use std::sync::Barrier;

use verbena_testing::wait_until;

use super::*;

#[test]
fn status_socket_error_names_the_path() {
    let folder = std::env::temp_dir().join(format!("verbena-status-file-{}", std::process::id()));
    std::fs::write(&folder, "in the way").unwrap();
    let refused = StatusSocket::open_in(&folder, "host-net0")
        .unwrap_err()
        .to_string();
    std::fs::remove_file(&folder).unwrap();
    assert!(refused.contains(folder.to_str().unwrap()), "{refused}");
}

/// Of drivers that start at once, also where a killed one left its socket, exactly one gets the name.
#[test]
fn one_of_simultaneous_starters_gets_the_socket() {
    let folder = std::env::temp_dir().join(format!("verbena-starters-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("host-net0.sock");
    for _ in 0..100 {
        drop(UnixListener::bind(&path).unwrap());
        let all = Barrier::new(4);
        let start = || {
            all.wait();
            StatusSocket::open_in(&folder, "host-net0")
        };
        let opened: Vec<io::Result<StatusSocket>> = std::thread::scope(|scope| {
            let starters = [(); 4].map(|()| scope.spawn(start));
            starters.map(|starter| starter.join().unwrap()).into()
        });
        let running = opened.iter().filter(|socket| socket.is_ok());
        assert_eq!(running.count(), 1, "{opened:?}");
        assert!(path.exists());
        drop(opened);
        assert!(!path.exists());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

const OTHER_USER: &str = "VERBENA_TEST_STATUS";

#[test]
fn as_other_user() {
    if let Ok(path) = std::env::var(OTHER_USER) {
        // The driver is root's, which every user trusts; but it does not trust this user.
        println!("\n> {:?}", query_path(Path::new(&path)));
    }
}

/// Also if the modes of directory and socket were changed. Only root can run a process as another user.
#[test]
fn other_users_get_no_status() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    let folder = std::env::temp_dir().join(format!("verbena-status-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let status_socket = StatusSocket::open_in(&folder, "host-net0").unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&status_socket.path), 0o600);
    for path in [&folder, &status_socket.path] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    let other = Command::new(std::env::current_exe().unwrap())
        .args(["status::tests::as_other_user", "--exact", "--nocapture"])
        .env(OTHER_USER, &status_socket.path)
        .uid(65_534)
        .stdout(std::process::Stdio::piped())
        .spawn();
    let mut other = match other {
        Ok(other) => other,
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            std::fs::remove_dir_all(&folder).unwrap();
            println!("not shown: {error}");
            return;
        }
    };
    wait_until("the other user has its answer", || {
        status_socket.serve(|| "for us".to_owned());
        other.try_wait().unwrap().is_some()
    });
    let said = other.wait_with_output().unwrap().stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("> Ok(\"\")"), "{said}");
    // As the same user, in a thread, since the test also answers.
    let path = status_socket.path.clone();
    let client = std::thread::spawn(move || query_path(&path).unwrap());
    wait_until("an answer", || {
        status_socket.serve(|| "for us".to_owned());
        client.is_finished()
    });
    assert_eq!(client.join().unwrap(), "for us");
    std::fs::remove_dir_all(&folder).unwrap();
}
