//! Redirections: whether they are followed, and whether CHAP credentials are sent to the new host. A CHAP exchange would let that host guess
//! the password offline.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use verbena::{Config, Device};
use verbena_storage::session::{Options, Redirects};
use verbena_storage::{Address, Session};
use verbena_storage_wire::iscsi::{FromInitiator, LoginRequest, LoginResponse, LoginStatus, Stage};
use verbena_testing::wait_for;

use crate::scripted::Conn;

const FIRST_HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;
const OTHER_HOST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const PATIENCE: Duration = Duration::from_secs(30);

/// The next connection of a listener, and the text of its first login request.
fn accept_login(listener: &TcpListener) -> (Conn, LoginRequest, String) {
    let mut conn = Conn::over(listener.accept().unwrap().0);
    let (request, text) = login_request(&mut conn);
    (conn, request, text.replace('\0', " "))
}

/// The next login request, and its text.
fn login_request(conn: &mut Conn) -> (LoginRequest, String) {
    wait_for("a login request", || match conn.next()? {
        (FromInitiator::LoginRequest(request), text) => {
            Some((request, String::from_utf8(text).unwrap()))
        }
        _ => None,
    })
}

fn answer(conn: &mut Conn, request: &LoginRequest, status: LoginStatus, text: &str) {
    let response = LoginResponse {
        more: false,
        csg: Stage::Security,
        nsg: None,
        version_max: 0,
        version_active: 0,
        data_len: text.len() as u32,
        isid: request.isid,
        tsih: 0,
        itt: request.itt,
        stat_sn: conn.status(),
        window: conn.window(),
        status,
    };
    conn.send_pdu(&response.emit(), text.as_bytes());
}

/// Opens a session at a target that redirects to `to`, where the login is rejected. Returns the text sent there, if any, and the error.
fn open_redirected(to: Ipv4Addr, more: &str, redirects: Redirects) -> (Option<String>, String) {
    let [old, new] = [FIRST_HOST, to].map(|host| TcpListener::bind((host, 0)).unwrap());
    let port = old.local_addr().unwrap().port();
    let place = new.local_addr().unwrap();
    let name = "iqn.2026-11.org.verbena:scripted";
    let address: Address =
        format!("iscsi://me%asecretof16bytes@{FIRST_HOST}:{port}/{name}/0{more}")
            .parse()
            .unwrap();
    let opening = std::thread::spawn(move || {
        let device = Device::with(Config::default()).unwrap();
        let options = Options {
            redirects,
            login: PATIENCE,
            ..Options::default()
        };
        Session::open(&device, &address, options)
            .unwrap_err()
            .to_string()
    });
    let (mut conn, request, text) = accept_login(&old);
    assert!(text.contains("CHAP"), "{text}");
    let text = format!("TargetAddress={place},1\0");
    answer(&mut conn, &request, LoginStatus::MovedTemporarily, &text);
    new.set_nonblocking(true).unwrap();
    let came = wait_for("a connection, or the end", || match new.accept() {
        Ok((stream, _)) => Some(Some(stream)),
        Err(_) => opening.is_finished().then_some(None),
    });
    let said = came.filter(|_| !opening.is_finished()).map(|stream| {
        let mut conn = Conn::over(stream);
        let (request, text) = login_request(&mut conn);
        answer(&mut conn, &request, LoginStatus::AuthenticationFailed, "");
        text
    });
    (said, opening.join().unwrap())
}

#[test]
fn credentials_are_not_sent_to_another_host() {
    let (said, ended) = open_redirected(OTHER_HOST, "", Redirects::default());
    let said = said.expect("it goes there");
    assert!(!said.contains("CHAP"), "{said}");
    for word in [
        "127.0.0.2",
        "127.0.0.1",
        "credentials",
        "--redirect-credentials",
    ] {
        assert!(ended.contains(word), "{ended}");
    }
}

#[test]
fn credentials_are_sent_where_allowed() {
    let (said, ended) = open_redirected(OTHER_HOST, "", Redirects::WithCredentials);
    assert!(said.expect("it goes there").contains("CHAP"));
    assert!(!ended.contains("--redirect-credentials"), "{ended}");
    let (said, _) = open_redirected(FIRST_HOST, "", Redirects::default());
    assert!(
        said.expect("another port of the same host")
            .contains("CHAP")
    );
}

#[test]
fn redirects_can_be_disabled() {
    let (said, ended) = open_redirected(OTHER_HOST, "", Redirects::Forbidden);
    assert_eq!(said, None);
    assert!(
        ended.contains("127.0.0.2") && ended.contains("redirect"),
        "{ended}"
    );
}

/// Mutual CHAP is impossible without our credentials, so the redirection to another host is not followed.
#[test]
fn mutual_chap_refuses_redirects_to_another_host() {
    let mutual = "?target_user=it&target_password=anothersecret16";
    let (said, ended) = open_redirected(OTHER_HOST, mutual, Redirects::default());
    assert_eq!(said, None);
    assert!(ended.contains("--redirect-credentials"), "{ended}");
}
