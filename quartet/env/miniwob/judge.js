// Answers of a MiniWoB++ page, whose own code (core.js) draws the problem and computes the reward. See watch.js.
({
  start: ({ seed, longestMs }) => {
    // Every episode begins at the same moment, since the page `terminal` writes the date, and calendars mark it.
    const RealDate = Date
    const ahead = RealDate.UTC(2017, 5, 1, 12) - RealDate.now()
    window.Date = class extends RealDate {
      constructor(...parts) { parts.length ? super(...parts) : super(RealDate.now() + ahead) }
      static now() { return RealDate.now() + ahead }
    }
    // A slide animation of 400 ms only slows the step down.
    if (window.jQuery) jQuery.fx.off = true
    core.EPISODE_MAX_TIME = longestMs
    Math.seedrandom(seed)
    core.setDataMode('train')
    core.startEpisodeReal()
  },
  ready: () => WOB_TASK_READY,
  done: () => WOB_DONE_GLOBAL,
  // `reward` is the raw one, without time decay.
  outcome: () => {
    const utterance = core.getUtterance()
    return {
      goal: utterance.utterance ?? utterance,
      done: WOB_DONE_GLOBAL,
      reward: WOB_RAW_REWARD_GLOBAL,
      reason: WOB_REWARD_REASON,
    }
  },
})
