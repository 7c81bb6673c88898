//! A habit that may pay: it is kept up as long as it does, and else tried again after more and more times without.
//! It promises that who tries in vain does so ever more rarely, and trusts it again as soon as it paid once.
//! It refuses to know what it is about.

/// Times without it after it was in vain: at first, and at most, since they double each time.
const SKIP: (u32, u32) = (2, 64);

/// Whether to do something that pays at times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Habit {
    /// So many times go by until it is tried again.
    skip: u32,
    /// So many more if that is in vain.
    then: u32,
}

impl Default for Habit {
    fn default() -> Habit {
        Habit {
            skip: 0,
            then: SKIP.0,
        }
    }
}

impl Habit {
    /// It is tried now.
    pub fn is_on(&self) -> bool {
        self.skip == 0
    }

    /// A time went by without it.
    pub fn pass(&mut self) {
        self.skip = self.skip.saturating_sub(1);
    }

    /// It was tried, and paid or not.
    pub fn learn(&mut self, paid: bool) {
        *self = match paid {
            true => Habit::default(),
            false => Habit {
                skip: self.then,
                then: (self.then * 2).min(SKIP.1),
            },
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times without it until it is tried.
    fn passes(habit: &mut Habit) -> u32 {
        let mut passes = 0;
        while !habit.is_on() {
            habit.pass();
            passes += 1;
        }
        passes
    }

    #[test]
    fn in_vain_is_tried_ever_more_rarely() {
        let mut habit = Habit::default();
        let mut all = Vec::new();
        for _ in 0..8 {
            all.push(passes(&mut habit));
            habit.learn(false);
        }
        assert_eq!(all, [0, 2, 4, 8, 16, 32, 64, 64]);
    }

    #[test]
    fn once_it_paid_it_is_trusted_again() {
        let mut habit = Habit::default();
        for _ in 0..5 {
            passes(&mut habit);
            habit.learn(false);
        }
        passes(&mut habit);
        habit.learn(true);
        assert!(habit.is_on());
        habit.learn(false);
        assert_eq!(passes(&mut habit), 2);
    }
}
