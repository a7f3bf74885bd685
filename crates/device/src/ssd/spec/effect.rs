//! Keys of an SSD that do something only together with others.

use super::{Arbitration, GcPolicy, InitialState, Interleave, MultiPlane, Scheduling, SsdSpec};
use crate::effect::Needs;
use crate::ssd::hybrid::spec::Mapping;

const fn needs(
    (table, key): (&'static str, &'static str),
    works: fn(&SsdSpec) -> bool,
    needs: &'static str,
) -> Needs<SsdSpec> {
    Needs {
        table,
        key,
        works,
        needs,
    }
}

const MULTI_PLANE: &str = "several planes a die, flash.multi_plane = \"same_page\" or \"any\" and \
     flash.interleave = \"die\" or \"package\"";
const MAP_CACHE: &str = "ftl.map_cache_kb above 0";

/// Every key that some drive has no use for.
pub(super) const NEEDS: &[Needs<SsdSpec>] = &[
    needs(
        ("controller", "reads_in_a_row"),
        |spec| spec.controller.scheduling == Scheduling::ReadPriority || suspends(spec),
        "controller.scheduling = \"read_priority\", flash.program_suspend_us or \
         flash.erase_suspend_us",
    ),
    needs(
        ("channel", "commands_first"),
        |spec| spec.controller.scheduling != Scheduling::Paq,
        "controller.scheduling other than \"paq\", which sends them first itself",
    ),
    needs(
        ("flash", "suspend_above_us"),
        suspends,
        "flash.program_suspend_us or flash.erase_suspend_us",
    ),
    needs(("flash", "multi_plane_reach"), works_on_planes, MULTI_PLANE),
    needs(
        ("channel", "plane_command_ns"),
        works_on_planes,
        MULTI_PLANE,
    ),
    needs(("ftl", "map_cache_entry_bytes"), caches_its_map, MAP_CACHE),
    needs(("ftl", "map_line_entries"), caches_its_map, MAP_CACHE),
    needs(
        ("ftl", "in_step"),
        |spec| !spec.ftl.in_step || spec.planes_per_row() > 1,
        "several planes a die, flash.multi_plane = \"same_page\", static allocation, mapped \
         pages and gc.scope = \"plane\", without flash.superpage and flash.copyback",
    ),
    needs(
        ("read_cache", "read_ahead_streams"),
        |spec| {
            spec.read_cache
                .is_some_and(|cache| cache.read_ahead_bytes > 0)
        },
        "read_cache.read_ahead_kb above 0",
    ),
    needs(
        ("gc", "choices"),
        |spec| matches!(spec.gc.policy, GcPolicy::Choices(_)),
        "gc.policy = \"d_choices\"",
    ),
    needs(
        ("nvme", "burst"),
        |spec| spec.identity.max_queues > 1,
        "host.queues above 1",
    ),
    needs(
        ("nvme", "queue_priorities"),
        |spec| (spec.nvme.as_ref()).is_some_and(|nvme| nvme.arbitration == Arbitration::Weighted),
        "nvme.arbitration = \"weighted\"",
    ),
    needs(
        ("nvme", "high_weight"),
        |spec| has_class(spec, 1),
        "nvme.arbitration = \"weighted\" and an h in nvme.queue_priorities",
    ),
    needs(
        ("nvme", "medium_weight"),
        |spec| has_class(spec, 2),
        "nvme.arbitration = \"weighted\" and an m in nvme.queue_priorities",
    ),
    needs(
        ("nvme", "low_weight"),
        |spec| has_class(spec, 3),
        "nvme.arbitration = \"weighted\" and an l in nvme.queue_priorities",
    ),
    needs(
        ("aged", "hot_writes"),
        |spec| match &spec.state {
            InitialState::Aged(aged) => aged.hot_share > 0.0,
            _ => false,
        },
        "aged.hot_share above 0",
    ),
    needs(
        ("aged", "behind_blocks"),
        |spec| spec.ftl.mapping == Mapping::Page,
        "ftl.mapping = \"page\"",
    ),
];

fn suspends(spec: &SsdSpec) -> bool {
    spec.flash.program_suspend_ns.is_some() || spec.flash.erase_suspend_ns.is_some()
}

/// Whether planes of a die can work together.
fn works_on_planes(spec: &SsdSpec) -> bool {
    spec.flash.multi_plane != MultiPlane::None
        && spec.geometry.planes_per_die > 1
        && spec.flash.interleave != Interleave::Plane
}

fn caches_its_map(spec: &SsdSpec) -> bool {
    spec.ftl.map_cache_entries.is_some()
}

/// Whether a queue is of that class, from 0 (urgent) to 3 (low).
fn has_class(spec: &SsdSpec, class: u8) -> bool {
    let nvme = spec.nvme.as_ref();
    nvme.is_some_and(|nvme| {
        nvme.arbitration == Arbitration::Weighted && nvme.queue_priorities.contains(&class)
    })
}
