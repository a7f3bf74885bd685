//! TLS, judged by libnbd, QEMU and fio.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::support::Place;
use crate::support::served::{Served, have, judge, verified};

/// Makes an authority, and certificates of it for one server and one client: the
/// files that libnbd, nbdkit and QEMU look for, in a folder of that
/// name. The server is `localhost`.
fn certificates(place: &Place, name: &str) -> PathBuf {
    let folder = place.path(name);
    std::fs::create_dir_all(&folder).expect("a folder");
    let write = |file: &str, text: String| {
        std::fs::write(folder.join(file), text).expect("a file");
    };
    let mut authority = CertificateParams::new(Vec::new()).expect("no names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate().expect("a key");
    let certificate = authority.self_signed(&key).expect("an authority");
    write("ca-cert.pem", certificate.pem());
    let issuer = Issuer::new(authority, key);
    for who in ["server", "client"] {
        let names = match who {
            "server" => vec!["localhost".to_string(), "127.0.0.1".to_string()],
            _ => vec!["somebody".to_string()],
        };
        let key = KeyPair::generate().expect("a key");
        let own = CertificateParams::new(names).expect("names");
        let certificate = own.signed_by(&key, &issuer).expect("a certificate");
        write(&format!("{who}-cert.pem"), certificate.pem());
        write(&format!("{who}-key.pem"), key.serialize_pem());
    }
    folder
}

fn options(folder: &Path) -> Vec<String> {
    vec![
        "--memory=64M".to_string(),
        "--listen=127.0.0.1:0".to_string(),
        format!("--tls-certificates={}", folder.display()),
    ]
}

fn start(place: &Place, options: &[String]) -> Served {
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    Served::start(place, &options)
}

/// `nbds` in place of `nbd`, with the folder to trust.
fn secret(uri: &str, folder: &Path) -> String {
    let joint = if uri.contains('?') { '&' } else { '?' };
    let uri = uri.replacen("nbd", "nbds", 1);
    format!("{uri}{joint}tls-certificates={}", folder.display())
}

/// Runs a judge, which must fail. Returns what it says.
fn refused(place: &Place, program: &str, args: &[&str]) -> String {
    let done = place.run(Path::new(program), args);
    assert_ne!(done.status, 0, "{program} {args:?}: {}", done.out);
    done.err
}

#[test]
fn clients_come_in_under_tls() {
    if !have("nbdinfo") || !have("nbdcopy") || !have("qemu-img") {
        return;
    }
    let place = Place::new();
    let folder = certificates(&place, "pki");
    let mut served = start(&place, &options(&folder));
    let tcp = served.next_line().replace("127.0.0.1", "localhost");
    let said = judge(&place, "nbdinfo", &[&secret(&tcp, &folder)]);
    assert!(
        said.out.contains("protocol: newstyle-fixed with TLS"),
        "{}",
        said.out
    );
    // On loopback it may be left out.
    let said = judge(&place, "nbdinfo", &[&tcp]);
    assert!(said.out.contains("without TLS"), "{}", said.out);
    let data: Vec<u8> = (0..64u32 << 18).flat_map(u32::to_ne_bytes).collect();
    std::fs::write(place.path("in.img"), data).expect("written");
    let unix = secret(&served.uri(), &folder);
    judge(&place, "nbdcopy", &["in.img", &unix]);
    judge(&place, "nbdcopy", &[&secret(&tcp, &folder), "out.img"]);
    judge(&place, "cmp", &["in.img", "out.img"]);
    let port = tcp.rsplit(':').next().expect("a port");
    let object = format!(
        "tls-creds-x509,id=tls0,endpoint=client,dir={}",
        folder.display()
    );
    let image = format!("driver=nbd,host=localhost,port={port},tls-creds=tls0");
    let args = ["compare", "--object", &object, "--image-opts", &image];
    judge(
        &place,
        "qemu-img",
        &[&args[..], &["driver=file,filename=in.img"]].concat(),
    );
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_load_under_tls_keeps_every_byte() {
    if !have("fio") {
        return;
    }
    let place = Place::new();
    // Where libnbd looks for certificates that a URI does not name.
    let folder = certificates(&place, ".pki/libnbd");
    let served = start(&place, &options(&folder));
    let uri = served.uri().replacen("nbd", "nbds", 1);
    let home = format!("HOME={}", place.path(".").display());
    let args = verified(&uri, 4, "randrw", "8m");
    let mut fio = vec![home.as_str(), "fio"];
    fio.extend(args.iter().map(String::as_str));
    judge(&place, "env", &fio);
    // Our own client, whose requests fill the socket's buffers.
    let uri = secret(&served.uri(), &folder);
    let load = ["load", &uri, "--seconds", "0.3", "--connections", "2"];
    place.blklab(&[&load[..], &["--bs", "256K"]].concat()).ok();
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn who_must_use_tls_is_not_let_in_without() {
    if !have("nbdinfo") {
        return;
    }
    let place = Place::new();
    let (folder, other) = (certificates(&place, "pki"), certificates(&place, "other"));
    let mut all = options(&folder);
    all.push("--tls=require".to_string());
    let mut served = start(&place, &all);
    let tcp = served.next_line().replace("127.0.0.1", "localhost");
    for uri in [&tcp, &served.uri()] {
        refused(&place, "nbdinfo", &[uri]);
        judge(&place, "nbdinfo", &[&secret(uri, &folder)]);
    }
    // A server of another authority is not trusted.
    refused(&place, "nbdinfo", &[&secret(&tcp, &other)]);
    let load = ["load", &secret(&tcp, &other), "--seconds", "0.1"];
    let done = place.blklab(&load);
    assert_eq!(done.status, 1);
    assert!(done.err.contains("TLS: "), "{}", done.err);
    drop(served);
    // A client of another authority is not, where clients are looked at.
    let mut known = options(&folder);
    known.push("--tls-verify-peer".to_string());
    let served = start(&place, &known);
    judge(&place, "nbdinfo", &[&secret(&served.uri(), &folder)]);
    for file in ["client-cert.pem", "client-key.pem"] {
        std::fs::copy(other.join(file), folder.join(file)).expect("copied");
    }
    refused(&place, "nbdinfo", &[&secret(&served.uri(), &folder)]);
    std::fs::remove_file(folder.join("client-cert.pem")).expect("removed");
    std::fs::remove_file(folder.join("client-key.pem")).expect("removed");
    refused(&place, "nbdinfo", &[&secret(&served.uri(), &folder)]);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn addresses_that_others_reach_need_it() {
    let place = Place::new();
    let folder = certificates(&place, "pki");
    let public = ["serve", "--memory", "1M", "--listen", "0.0.0.0:0"];
    let done = place.blklab(&public);
    assert_eq!(done.status, 2);
    assert!(done.err.contains("--tls-certificates DIR"), "{}", done.err);
    if !have("nbdinfo") {
        return;
    }
    let mut options = options(&folder);
    options[1] = "--listen=0.0.0.0:0".to_string();
    let mut served = start(&place, &options);
    let uri = served.next_line().replace("0.0.0.0", "localhost");
    refused(&place, "nbdinfo", &[&uri]);
    judge(&place, "nbdinfo", &[&secret(&uri, &folder)]);
}

#[test]
fn one_server_stands_before_another_under_tls() {
    if !have("nbdcopy") {
        return;
    }
    let (place, behind) = (Place::new(), Place::new());
    let folder = certificates(&place, "pki");
    let mut all = options(&folder);
    all.push("--tls=require".to_string());
    let origin = start(&behind, &all);
    let before = secret(&origin.uri(), &folder);
    let front = Served::start(&place, &["--nbd", &before, "--scheduler", "bfq"]);
    let data: Vec<u8> = (0..64u32 << 18).flat_map(u32::to_ne_bytes).collect();
    std::fs::write(place.path("in.img"), data).expect("written");
    judge(&place, "nbdcopy", &["in.img", &front.uri()]);
    judge(&place, "nbdcopy", &[&before, "out.img"]);
    judge(&place, "cmp", &["in.img", "out.img"]);
    assert_eq!(front.terminate(), Some(0));
}
