// The stretch of time that is shown, within what was recorded; all in Unix seconds.

const LEAST_SECONDS = 0.05;

export class Stretch {
  constructor({ first, last, start, seconds, most }) {
    [this.first, this.last] = [Number(first), Number(last)];
    [this.start, this.seconds] = [Number(start), Number(seconds)];
    this.most = Number(most);
  }

  // Set the stretch, no longer than the server allows and not completely outside of the run.
  set(start, seconds) {
    this.seconds = Math.min(Math.max(seconds, LEAST_SECONDS), this.most);
    this.start = Math.min(Math.max(start, this.first - this.seconds), this.last);
  }

  reaches(first, last) {
    [this.first, this.last] = [first, last];
  }

  get end() {
    return this.start + this.seconds;
  }

  // Position of the stretch in the run: 0 if it begins with the run, 1 if it ends with the run.
  get share() {
    return (this.start - this.first) / Math.max(this.last - this.seconds - this.first, 0.001);
  }

  startAt(share) {
    return this.first + share * Math.max(this.last - this.seconds - this.first, 0);
  }
}
