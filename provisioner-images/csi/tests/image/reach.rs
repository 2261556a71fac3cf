//! Tests of the connection to the driver.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use scripted_csi::{Act, Driver, Options, Tls};
use tonic::Code;

use crate::run::{ONE, Stage};

#[test]
fn a_run_waits_for_a_driver_that_starts_later() {
    let stage = Stage::new(Options::default());
    let later = stage.path("later.sock");
    let endpoint = format!("unix://{}", later.display());
    let run = stage.run(ONE).parameter("csi-endpoint", &endpoint);
    let began = Instant::now();
    run.clone()
        .parameter("csi-connect-timeout", "1s")
        .provision()
        .failed(75, "within 1 s: there is no such socket; does the driver run");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // A socket on which no process listens.
    drop(std::os::unix::net::UnixListener::bind(&later).unwrap());
    fs::set_permissions(&later, fs::Permissions::from_mode(0o777)).unwrap();
    run.clone().parameter("csi-connect-timeout", "1s").provision().failed(75, "Connection refused");
    fs::remove_file(&later).unwrap();
    let mut begun = run.parameter("csi-connect-timeout", "2m").begin("provision");
    let driver = Driver::start(Options::default(), &later);
    driver.acts("Probe", [Act::NotReady, Act::Fail(Code::FailedPrecondition), Act::Fail(Code::Unavailable)]);
    assert!(begun.wait().unwrap().success());
    assert_eq!(driver.volumes().len(), 1);
}

#[test]
fn an_unready_driver_and_another_driver_are_reported() {
    let stage = Stage::new(Options::default());
    let run = stage.run(ONE).parameter("csi-connect-timeout", "1s");
    stage.driver.acts("Probe", vec![Act::NotReady; 100]);
    run.provision().failed(75, "it says that it is not ready yet");
    let stage = Stage::new(Options::default());
    let run = stage.run(ONE);
    stage.driver.acts("Probe", [Act::Fail(Code::PermissionDenied)]);
    run.provision().failed(77, "Probe with PERMISSION_DENIED");
    run.clone()
        .parameter("csi-driver", "csi.other")
        .provision()
        .failed(78, "is csi.test, and the config says csi-driver: csi.other");
    stage.driver.acts("ControllerGetCapabilities", [Act::Fail(Code::Internal)]);
    run.provision().failed(75, "ControllerGetCapabilities with INTERNAL");
    fs::set_permissions(stage.path("csi.sock"), fs::Permissions::from_mode(0o700)).unwrap();
    run.provision().failed(78, "may not be used by user 65532");
}

#[test]
fn a_call_that_takes_too_long_is_repeated() {
    let stage = Stage::new(Options::default());
    stage.driver.acts("CreateVolume", [Act::Slow(Duration::from_secs(600))]);
    stage.run(ONE).parameter("csi-timeout", "1s").provision().well();
    assert_eq!(stage.driver.volumes().len(), 1);
}

#[test]
fn a_driver_that_restarts_during_its_work_is_found_again() {
    let stage = Stage::new(Options::default());
    let socket = stage.path("other.sock");
    let run = stage.run(ONE).parameter("csi-endpoint", &format!("unix://{}", socket.display()));
    let first = Driver::start(Options::default(), &socket);
    first.acts("CreateVolume", [Act::Slow(Duration::from_secs(600))]);
    let mut begun = run.begin("provision");
    let until = Instant::now() + Duration::from_secs(30);
    while first.volumes().is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(first);
    let second = Driver::start(Options::default(), &socket);
    assert!(begun.wait().unwrap().success());
    assert_eq!(second.volumes().len(), 1);
}

#[test]
fn a_run_that_is_stopped_says_what_it_waited_for() {
    let stage = Stage::new(Options::default());
    stage.driver.acts("CreateVolume", [Act::Slow(Duration::from_secs(600))]);
    stage.driver.calls();
    let run = stage.run(ONE);
    let mut begun = run.begin("provision");
    let until = Instant::now() + Duration::from_secs(30);
    while stage.driver.volumes().is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = begun.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(begun.wait().unwrap().code(), Some(75));
    let message = run.termination_message();
    assert!(message.contains("had not ended CreateVolume at the end of the config's `timeout`"), "{message}");
    run.provision().well();
    assert_eq!(stage.driver.volumes().len(), 1);
}

/// Makes an authority, and a certificate of it for 127.0.0.1.
fn certificates(use_for: ExtendedKeyUsagePurpose) -> Tls {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "driver.example".to_owned()]).unwrap();
    params.extended_key_usages = vec![use_for];
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    Tls { authority, certificate, key: key.serialize_pem() }
}

#[test]
fn over_tcp_both_sides_need_certificates() {
    let stage = Stage::new(Options::default());
    let (server, client) =
        (certificates(ExtendedKeyUsagePurpose::ServerAuth), certificates(ExtendedKeyUsagePurpose::ClientAuth));
    let stranger = certificates(ExtendedKeyUsagePurpose::ClientAuth);
    let known = Tls { authority: client.authority.clone(), certificate: server.certificate, key: server.key };
    let driver = Driver::start_tcp(Options::default(), &known);
    let write = |directory: &str, authority: &str, of: &Tls| {
        let at = stage.path(directory);
        fs::create_dir(&at).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
        for (name, text) in [("ca.crt", authority), ("tls.crt", &of.certificate), ("tls.key", &of.key)] {
            fs::write(at.join(name), text).unwrap();
        }
        at.display().to_string()
    };
    let run = stage
        .run(ONE)
        .parameter("csi-endpoint", &format!("tcp://127.0.0.1:{}", driver.port()))
        .parameter("csi-connect-timeout", "1s");
    run.clone().parameter("csi-tls", "/not/there").provision().failed(78, "/not/there/ca.crt cannot be read");
    let trusted = write("trusted", &server.authority, &client);
    run.clone().parameter("csi-tls", &trusted).provision().well();
    run.clone().parameter("csi-tls", &trusted).parameter("csi-tls-server-name", "driver.example").provision().well();
    run.clone()
        .parameter("csi-tls", &trusted)
        .parameter("csi-tls-server-name", "other.example")
        .provision()
        .failed(75, "no CSI driver answers");
    let untrusted = write("untrusted", &stranger.authority, &client);
    run.clone().parameter("csi-tls", &untrusted).provision().failed(75, "no CSI driver answers");
    let unknown = write("unknown", &server.authority, &stranger);
    run.clone().parameter("csi-tls", &unknown).provision().failed(75, "no CSI driver answers");
    assert_eq!(driver.volumes().len(), 1);
}
