// Answers of a MiniWoB++ page, whose own code (core.js) draws the problem and judges. See watch.js.
({
  start: ({ seed, longestMs }) => {
    // A slide that takes 400 ms changes nothing but the time a step takes.
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
