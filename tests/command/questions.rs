//! Questions: a job with its drive and what its answer is judged by.

use crate::support::Place;

/// Those that come with the program, with their sentences.
fn shipped(place: &Place) -> Vec<(String, String)> {
    let jobs = place.blklab(&["list", "jobs"]).ok().out;
    let questions = jobs.lines().filter(|line| line.starts_with("questions/"));
    let split = |line: &str| {
        let (name, question) = line.split_once("  ").expect("a name and what it is");
        (name.to_string(), question.trim().to_string())
    };
    questions.map(split).collect()
}

/// What each answers in a hurry: on one screen, and with something to do.
fn answers(part: usize) {
    let place = Place::new();
    let questions = shipped(&place);
    assert_eq!(questions.len(), 10);
    for (name, question) in questions.iter().skip(5 * part).take(5) {
        assert!(question.ends_with('?'), "{name}: {question}");
        let out = place.blklab(&["compare", name, "--quick"]).ok().out;
        assert_eq!(out.lines().next(), Some(question.as_str()), "{out}");
        assert!(out.contains("\nwhat to do: "), "{out}");
        assert!(out.lines().count() <= 50, "{out}");
    }
}

#[test]
fn the_first_five_are_answered_on_one_screen() {
    answers(0);
}

#[test]
fn the_other_five_are_answered_on_one_screen() {
    answers(1);
}

#[test]
fn ones_own_question_is_a_file_beside_its_job() {
    let place = Place::new();
    let question = place
        .blklab(&["show", "question", "questions/tenants"])
        .ok()
        .out;
    assert!(
        question.contains("goals = [\"victim.read.p99\"]"),
        "{question}"
    );
    let job = "[a]\nfilename=/dev/x\ndirect=1\nrw=randread\nnumber_ios=200\nsize=1g\n";
    place.file("mine.fio", job);
    let mine =
        "question = \"Which?\"\njob = \"mine.fio\"\ndrive = \"null\"\ngoals = [\"a.read.p99\"]\n";
    place.file("mine.toml", mine);
    let args = ["compare", "mine.toml", "--repeats", "2"];
    let out = place.blklab(&args).ok().out;
    assert!(out.starts_with("Which?\nmine.fio on null, "), "{out}");
    assert!(out.contains("a.read.p99"), "{out}");
    // What is given counts before what the question says.
    let more = ["--drive", "nvme", "--goal", "a.read.mean"];
    let json = place.json(&[&args[..], &more].concat());
    assert_eq!(json["question"], "Which?");
    assert_eq!(json["drive"], "nvme");
    let rows = json["judgement"]["rows"].as_array().expect("rows");
    assert_eq!((rows.len(), &rows[0]["name"]), (1, &"a.read.mean".into()));
    let run = place.blklab(&["run", "mine.toml"]).ok().out;
    assert!(run.contains("a: (g=0): rw=randread"), "{run}");
    for (args, said) in [
        (
            ["compare", "mine.toml", "-o", "mine.fio"],
            "the command reads that file",
        ),
        (
            ["compare", "mine.toml", "-o", "mine.toml"],
            "the command reads that file",
        ),
        (
            ["compare", "mine.toml", "--goal", "b.time"],
            "there is no job b",
        ),
    ] {
        let done = place.blklab(&args);
        assert_eq!(done.status, 2);
        assert!(done.err.contains(said), "{}", done.err);
    }
    place.file("mine.toml", &mine.replace("p99", "p98"));
    let done = place.blklab(&["compare", "mine.toml"]);
    assert_eq!(done.status, 2);
    let said = "mine.toml:4: `goals`: found [\"a.read.p98\"], legal is an array of figures";
    assert!(done.err.contains(said), "{}", done.err);
}
