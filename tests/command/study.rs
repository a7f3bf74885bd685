//! `blklab study`: a document's measurements, made again.

use crate::support::Place;

#[test]
fn a_study_shows_its_patterns_and_what_the_document_found() {
    let place = Place::new();
    let args = [
        "study",
        "pi4",
        "--size",
        "40M",
        "--repeats",
        "1",
        "--html",
        "pi4.html",
    ];
    let text = place.blklab(&args).ok().out;
    for direction in ["reads", "writes"] {
        for drive in ["SSD", "SD card"] {
            let head = format!("{drive}: {direction}, MB/s");
            assert!(text.contains(&head), "no {head}: {text}");
        }
    }
    assert_eq!(
        text.matches("rand-4-jobs4-depth4").count() / 12,
        1,
        "{text}"
    );
    assert_eq!(text.matches("  why: ").count(), 10, "{text}");
    assert!(!text.contains("hangs on"), "{text}");
    assert!(text.contains("assumed values 32 were not tried"), "{text}");
    // Files as short as these are read faster by four processes in order too.
    assert!(!text.contains("one process gets all"), "{text}");
    let page = std::fs::read_to_string(place.path("pi4.html")).expect("a page");
    // Each pattern has a histogram and a chart of CPUs under each scheduler.
    assert_eq!(
        page.matches("aria-label=\"mean of 4 CPUs\"").count(),
        32 * 4
    );
    assert_eq!(
        page.matches("requests by their time in the drive\"")
            .count(),
        32 * 4
    );
}

#[test]
fn a_study_s_files_may_be_on_a_file_system() {
    let place = Place::new();
    let args = [
        "study",
        "pi4",
        "--fs",
        "ext2",
        "--size",
        "16M",
        "--repeats",
        "1",
        "--assumed",
        "1",
    ];
    let text = place.blklab(&args).ok().out;
    assert!(
        text.contains("files on ext2; 16 MiB for each process"),
        "{text}"
    );
    // The card is as the document's mke2fs leaves it.
    assert!(text.contains("SD card sd-card, fresh"), "{text}");
    // Each finding says what it hangs on, and the end what was tried.
    assert_eq!(text.matches("\" hangs on ").count(), 10, "{text}");
    assert!(
        text.contains("Of 32 assumed values 31 were not tried"),
        "{text}"
    );
    assert_eq!(text.matches("  why: ").count(), 10, "{text}");
    // The reason follows what the files are on.
    assert!(text.contains("indirect block"), "{text}");
    let done = place.blklab(&["study", "pi4", "--fs", "ext9"]);
    assert_eq!(done.status, 2);
    assert!(done.err.contains("legal is raw, ext2"), "{}", done.err);
}

/// What decides on writes to a card is the order in which the flusher makes them, which a
/// driver that sleeps keeps under any scheduler.
#[test]
fn no_scheduler_makes_writes_in_order_to_a_card_slow() {
    let place = Place::new();
    let args = [
        "compare",
        "pi4/write",
        "--drive",
        "sd-card",
        "--machine",
        "rpi4",
        "--memory",
        "256M",
        "--override",
        "size=96M",
        "--schedulers",
        "none,mq-deadline,kyber,bfq",
        "--repeats",
        "1",
        "--output-format",
        "json",
    ];
    let text = place.blklab(&args).ok().out;
    let comparison: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for section in comparison["sections"].as_array().expect("groups") {
        if !section["title"]
            .as_str()
            .is_some_and(|title| title.starts_with("seq"))
        {
            continue;
        }
        let rows = section["directions"][0]["rows"]
            .as_array()
            .expect("schedulers");
        let mean = |row: &serde_json::Value| {
            row["cells"]["bandwidth_bytes_per_s"]["value"]["mean"].as_f64()
        };
        let means: Vec<f64> = rows.iter().filter_map(mean).collect();
        let least = means.iter().copied().fold(f64::INFINITY, f64::min);
        let most = means.iter().copied().fold(0.0, f64::max);
        assert!(means.len() == 4 && most < 1.1 * least, "{means:?}");
    }
}

#[test]
fn another_study_is_refused() {
    let done = Place::new().blklab(&["study", "pi5"]);
    assert_eq!(done.status, 2);
    assert!(
        done.err.contains("pi5") && done.err.contains("pi4"),
        "{}",
        done.err
    );
}
