//! Kobjects: named nodes of one tree, with attributes and links to each other
//! (`lib/kobject.c`, `fs/sysfs`).

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// A kobject's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KobjectId(usize);

/// A node of the tree: a folder in sysfs.
#[derive(Clone, Debug)]
pub struct Kobject {
    name: String,
    parent: Option<KobjectId>,
    children: BTreeMap<String, KobjectId>,
    attributes: BTreeMap<String, String>,
    links: BTreeMap<String, KobjectId>,
}

impl Kobject {
    fn new(name: &str, parent: Option<KobjectId>) -> Kobject {
        Kobject {
            name: name.to_owned(),
            parent,
            children: BTreeMap::new(),
            attributes: BTreeMap::new(),
            links: BTreeMap::new(),
        }
    }

    /// Its files, by name.
    pub fn attributes(&self) -> &BTreeMap<String, String> {
        &self.attributes
    }

    /// The folders in it, by name.
    pub fn children(&self) -> &BTreeMap<String, KobjectId> {
        &self.children
    }

    /// Its links to other kobjects, by name.
    pub fn links(&self) -> &BTreeMap<String, KobjectId> {
        &self.links
    }
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Sysfs {
    /// `None` where a kobject was released: numbers are not used again, so that a
    /// link to what has gone is never a link to something else.
    kobjects: Vec<Option<Kobject>>,
}

/// Folders that are there before anything is registered.
const ROOTS: [&str; 6] = ["block", "bus", "class", "devices", "kernel", "module"];

impl Sysfs {
    pub(crate) fn new() -> Sysfs {
        let mut sysfs = Sysfs {
            kobjects: vec![Some(Kobject::new("", None))],
        };
        for name in ROOTS {
            sysfs.add(KobjectId(0), name);
        }
        sysfs
    }

    /// The folder `name` of the tree's top.
    pub fn root(&mut self, name: &str) -> KobjectId {
        self.add(KobjectId(0), name)
    }

    /// The kobject, `None` if it was removed.
    pub fn get(&self, id: KobjectId) -> Option<&Kobject> {
        self.kobjects.get(id.0)?.as_ref()
    }

    fn get_mut(&mut self, id: KobjectId) -> Option<&mut Kobject> {
        self.kobjects.get_mut(id.0)?.as_mut()
    }

    /// The child `name` of `parent`, made if it is not there (`kobject_add`; a glue
    /// folder is shared by all who need it).
    pub fn add(&mut self, parent: KobjectId, name: &str) -> KobjectId {
        // As the kernel does with names that hold a slash.
        let name = name.replace('/', "!");
        if let Some(&child) = self.get(parent).and_then(|p| p.children.get(&name)) {
            return child;
        }
        let id = KobjectId(self.kobjects.len());
        self.kobjects.push(Some(Kobject::new(&name, Some(parent))));
        if let Some(parent) = self.get_mut(parent) {
            parent.children.insert(name, id);
        }
        id
    }

    /// Removes a kobject and all below it. Links to it go too.
    pub fn remove(&mut self, id: KobjectId) {
        let Some(gone) = self.kobjects.get_mut(id.0).and_then(Option::take) else {
            return;
        };
        if let Some(parent) = gone.parent.and_then(|parent| self.get_mut(parent)) {
            parent.children.remove(&gone.name);
        }
        for child in gone.children.into_values() {
            self.remove(child);
        }
        for kobject in self.kobjects.iter_mut().flatten() {
            kobject.links.retain(|_, to| *to != id);
        }
    }

    /// Removes a folder that only grouped others, once it is empty.
    pub(crate) fn remove_if_empty(&mut self, id: KobjectId) {
        let empty = self.get(id).is_some_and(|kobject| {
            kobject.children.is_empty() && kobject.attributes.is_empty() && kobject.links.is_empty()
        });
        if empty {
            self.remove(id);
        }
    }

    /// Where it lies, `/devices/...`.
    pub fn path(&self, id: KobjectId) -> String {
        let mut names = Vec::new();
        let mut at = Some(id);
        while let Some(kobject) = at.and_then(|id| self.get(id)) {
            names.push(kobject.name.as_str());
            at = kobject.parent;
        }
        names.reverse();
        match names.len() {
            1 => "/".to_owned(),
            _ => names.join("/"),
        }
    }

    /// The folder above.
    pub fn parent(&self, id: KobjectId) -> Option<KobjectId> {
        self.get(id)?.parent
    }

    /// Its name.
    pub fn name(&self, id: KobjectId) -> &str {
        self.get(id).map_or("", |kobject| &kobject.name)
    }

    /// The kobject at a path below the top.
    pub fn find(&self, path: &str) -> Option<KobjectId> {
        path.split('/')
            .filter(|name| !name.is_empty())
            .try_fold(KobjectId(0), |at, name| {
                let kobject = self.get(at)?;
                let child = kobject.children.get(name);
                child.or_else(|| kobject.links.get(name)).copied()
            })
    }

    /// Sets a file's content, without the newline at its end.
    pub fn set(&mut self, id: KobjectId, name: &str, value: impl Into<String>) {
        match name.split_once('/') {
            Some((folder, rest)) => {
                let child = self.add(id, folder);
                self.set(child, rest, value);
            }
            None => {
                if let Some(kobject) = self.get_mut(id) {
                    kobject.attributes.insert(name.to_owned(), value.into());
                }
            }
        }
    }

    /// Sets several files' contents.
    pub fn set_all(&mut self, id: KobjectId, files: &[(String, String)]) {
        for (name, value) in files {
            self.set(id, name, value.as_str());
        }
    }

    /// A file's content, by its path below `id`.
    pub fn attribute(&self, id: KobjectId, path: &str) -> Option<&str> {
        let kobject = self.get(id)?;
        match path.split_once('/') {
            Some((folder, rest)) => self.attribute(*kobject.children.get(folder)?, rest),
            None => kobject.attributes.get(path).map(String::as_str),
        }
    }

    /// Links `name` in `from` to `to`.
    pub fn link(&mut self, from: KobjectId, name: &str, to: KobjectId) {
        if let Some(kobject) = self.get_mut(from) {
            kobject.links.insert(name.to_owned(), to);
        }
    }

    /// Takes a link away.
    pub fn unlink(&mut self, from: KobjectId, name: &str) {
        if let Some(kobject) = self.get_mut(from) {
            kobject.links.remove(name);
        }
    }

    /// Where the link leads from where it lies, as `readlink` shows it.
    pub fn link_target(&self, from: KobjectId, to: KobjectId) -> String {
        let (from, to) = (self.path(from), self.path(to));
        let from: Vec<&str> = from.split('/').skip(1).collect();
        let to: Vec<&str> = to.split('/').skip(1).collect();
        let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        let mut way = vec![".."; from.len() - common];
        way.extend(&to[common..]);
        way.join("/")
    }

    fn write_below(&self, out: &mut String, id: KobjectId, depth: usize) -> fmt::Result {
        let Some(kobject) = self.get(id) else {
            return Ok(());
        };
        let indent = "  ".repeat(depth);
        for (name, value) in &kobject.attributes {
            writeln!(out, "{indent}{name}: {}", value.replace('\n', " "))?;
        }
        for (name, &to) in &kobject.links {
            writeln!(out, "{indent}{name} -> {}", self.link_target(id, to))?;
        }
        for (name, &child) in &kobject.children {
            writeln!(out, "{indent}{name}/")?;
            self.write_below(out, child, depth + 1)?;
        }
        Ok(())
    }
}

/// The whole tree: `name/` a folder, `name: value` a file, `name -> target` a link.
impl fmt::Display for Sysfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        self.write_below(&mut out, KobjectId(0), 0)?;
        f.write_str(&out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_removed_takes_its_children_and_links_to_it() {
        let mut sysfs = Sysfs::new();
        let devices = sysfs.root("devices");
        let card = sysfs.add(devices, "mmc0:4567");
        let disk = sysfs.add(card, "mmcblk0");
        let bus = sysfs.root("bus");
        sysfs.link(bus, "mmc0:4567", card);
        assert_eq!(sysfs.link_target(bus, card), "../devices/mmc0:4567");
        assert_eq!(sysfs.find("/bus/mmc0:4567/mmcblk0"), Some(disk));
        sysfs.remove(card);
        assert_eq!(sysfs.get(disk).map(Kobject::children), None);
        assert_eq!(sysfs.find("/bus/mmc0:4567"), None);
        assert_ne!(sysfs.add(devices, "mmc0:4567"), card);
    }

    #[test]
    fn attributes_lie_in_folders() {
        let mut sysfs = Sysfs::new();
        let block = sysfs.root("block");
        sysfs.set(block, "queue/iosched/fifo_batch", "16");
        assert_eq!(
            sysfs.attribute(block, "queue/iosched/fifo_batch"),
            Some("16")
        );
        assert_eq!(sysfs.attribute(block, "queue/none"), None);
        assert!(sysfs.to_string().contains("      fifo_batch: 16\n"));
    }
}
