//! Operations of one command are queued together.
//!
//! A controller knows all pages of a command before it tells the flash of the
//! first, so pages on several planes of a die that is idle are one multi-plane
//! command. (MQSim hands all transactions of a request to its scheduling unit
//! before that looks at any chip, too.)

use crate::ssd::flash::Flash;

impl Flash {
    /// Until [`Flash::start_gathered`] operations are queued and nothing
    /// starts. Calls may be nested; the last to end counts.
    #[inline]
    pub(crate) fn gather(&mut self) {
        self.gathering += 1;
    }

    /// Starts what may start of what has been queued meanwhile.
    #[inline]
    pub(crate) fn start_gathered(&mut self, now_ns: u64) {
        self.gathering -= 1;
        if self.gathering == 0 && !self.gathered.is_empty() {
            self.wake_gathered(now_ns);
        }
    }

    fn wake_gathered(&mut self, now_ns: u64) {
        for place in 0..self.gathered.len() {
            self.wake(now_ns, self.gathered[place]);
        }
        self.gathered.clear();
    }
}
