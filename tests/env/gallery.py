"""Hostile task pages: what each attempts, and the script that attempts it.

Each page is a MiniWoB++ page with one button, which ends the episode with reward 1. Its script runs while the page
loads. `PORT` is a local server that no page may reach, `FILE` a local file that no page may show.
"""

from pathlib import Path
from typing import NamedTuple

PAGE = """<!DOCTYPE html>
<html><head><title>Hostile</title>
<link rel="stylesheet" type="text/css" href="../core/core.css">
<script src="../core/core.js"></script>
<script>
  const genProblem = () => { document.getElementById('go').onclick = () => core.endEpisode(1, false, reason) }
  const each = (attempt) => { for (const w of [window, parent, top]) { try { attempt(w) } catch {} } }
  const attempt = (what) => { try { return what() } catch {} }
  let reason = 'solved'
  window.onload = () => core.startEpisode()
</script></head>
<body><div id="wrap"><div id="query">Click go.</div><div id="area"><button id="go">go</button></div></div>
<script>
  SCRIPT
</script></body></html>"""


class Hostile(NamedTuple):
    """One page of the gallery."""

    attempts: str
    script: str


GALLERY = {
    "overrides": Hostile(
        "replace the harness, wherever it may be, so that every later episode is won",
        """
        each((w) => w.eval(`
          const won = async () => ({ goal: 'won', text: '', done: true, reward: 1, reason: '' })
          window.quartet ??= {}
          window.stage ??= {}
          quartet.state = stage.state = won
        `))
        """,
    ),
    "prototypes": Hostile(
        "replace what every script needs, in every window",
        """
        each((w) => w.eval(`
          Element.prototype.getBoundingClientRect = () => { throw 0 }
          Document.prototype.dispatchEvent = EventTarget.prototype.dispatchEvent = () => true
          Promise.prototype.then = Map.prototype.get = Object.assign = () => 0
          JSON.stringify = () => 'won'
        `))
        """,
    ),
    "timers": Hostile(
        "win every later episode from a timer of a window that outlives this one",
        """
        each((w) => w.setInterval(`
          for (let i = 0; i < frames.length; i++) {
            frames[i].core.endEpisode(1)
            frames[i].WOB_RAW_REWARD_GLOBAL = 1
            frames[i].WOB_DONE_GLOBAL = true
          }`, 1))
        """,
    ),
    "messages": Hostile(
        "speak to the stage as the harness does, and flood it",
        """
        const { port1, port2 } = new MessageChannel()
        parent.postMessage('', '*', [port2])
        for (const word of ['page', 'view', 'top', 'show', 'constructor']) port1.postMessage(word)
        setInterval(() => { for (let i = 0; i < 1000; i++) parent.postMessage('x'.repeat(1000), '*') }, 1)
        """,
    ),
    "downloads": Hostile(
        "save files, by itself and when it is clicked",
        """
        const save = () => {
          const link = document.createElement('a')
          link.href = URL.createObjectURL(new Blob(['x']))
          link.download = 'saved.txt'
          document.body.append(link)
          link.click()
        }
        save()
        setTimeout(save, 100)
        document.getElementById('go').addEventListener('click', save)
        """,
    ),
    "popups": Hostile(
        "open windows that stay",
        """
        const pop = () => { for (let i = 0; i < 50; i++) attempt(() => open('about:blank', `w${i}`)) }
        pop()
        addEventListener('click', pop, true)
        addEventListener('keydown', pop, true)
        """,
    ),
    "files": Hostile(
        "show a local file",
        """
        for (const tag of ['iframe', 'embed', 'img', 'object']) {
          const element = document.createElement(tag)
          element.src = element.data = 'file://FILE'
          document.getElementById('area').append(element)
        }
        attempt(() => fetch('file://FILE').catch(() => 0))
        """,
    ),
    "network": Hostile(
        "call a server of this machine in every way that there is",
        """
        for (const host of ['127.0.0.1', 'localhost', '[::1]', '0.0.0.0', '127.1', 'quartet.localhost']) {
          const url = `http://${host}:PORT/`
          attempt(() => fetch(url, { method: 'POST', mode: 'no-cors', body: '{}' }).catch(() => 0))
          attempt(() => navigator.sendBeacon(url, '{}'))
          attempt(() => new WebSocket(url.replace('http', 'ws')))
          attempt(() => new EventSource(url))
          attempt(() => new Worker(url))
          attempt(() => importScripts(url))
          attempt(() => import(url).catch(() => 0))
          for (const tag of ['iframe', 'img', 'script', 'video', 'embed', 'link']) {
            const element = document.createElement(tag)
            Object.assign(element, { rel: 'stylesheet', href: url, src: url })
            document.body.append(element)
          }
          for (const rel of ['prefetch', 'preconnect', 'dns-prefetch', 'modulepreload']) {
            document.head.append(Object.assign(document.createElement('link'), { rel, href: url }))
          }
          const turn = { urls: `turn:${host}:PORT?transport=tcp`, username: 'u', credential: 'c' }
          attempt(() => {
            const peer = new RTCPeerConnection({ iceServers: [turn], iceTransportPolicy: 'relay' })
            peer.createDataChannel('x')
            peer.createOffer().then((offer) => peer.setLocalDescription(offer))
          })
          attempt(() => new WebTransport(url.replace('http:', 'https:')))
        }
        """,
    ),
    "forms": Hostile(
        "send a form to a server of this machine",
        """
        const form = document.createElement('form')
        Object.assign(form, { action: 'http://127.0.0.1:PORT/form', method: 'post' })
        document.body.append(form)
        attempt(() => form.submit())
        """,
    ),
    "goes_to_network": Hostile(
        "lead the frame to a server of this machine",
        "addEventListener('load', () => { location = 'http://127.0.0.1:PORT/' })",
    ),
    "top_to_network": Hostile(
        "lead the window to a server of this machine",
        "addEventListener('click', () => attempt(() => { top.location = 'http://127.0.0.1:PORT/' }), true)",
    ),
    "logs": Hostile(
        "log 60 MB",
        """
        const big = 'x'.repeat(60e6)
        console.log(big)
        console.error(big)
        setTimeout(() => { throw new Error(big) })
        """,
    ),
    "alerts": Hostile("show 60 MB in a dialog", "attempt(() => alert('x'.repeat(60e6))); attempt(() => print())"),
    "shows": Hostile(
        "show 60 MB, where they are read as a label and a reason",
        """
        const big = 'x'.repeat(60e6)
        document.getElementById('go').title = reason = big
        """,
    ),
    "huge_goal": Hostile("have a goal of 6 MB", "document.getElementById('query').textContent = 'x'.repeat(6e6)"),
    "surrogates": Hostile(
        "show halves of surrogate pairs, some of them where a label, a value or a reason is cut",
        r"""
        reason = 'r'.repeat(199) + '\u{1F600}'
        for (const text of ['a\ud83d', '\ude00', 'b'.repeat(39) + '\u{1F600}', 'c'.repeat(79) + '\u{1F600}']) {
          document.getElementById('query').append(text)
          document.getElementById('area').append(Object.assign(document.createElement('button'), { textContent: text }))
          document.getElementById('area').append(Object.assign(document.createElement('input'), { value: text }))
        }
        document.title = '\ud83d'
        attempt(() => alert('\ud83d'))
        """,
    ),
    "frames": Hostile(
        "add and remove frames, and change the URL, so that the browser has a lot to report",
        """
        setInterval(() => {
          for (let i = 0; i < 20; i++) {
            const frame = document.createElement('iframe')
            document.body.append(frame)
            attempt(() => history.replaceState(0, '', `#${Math.random()}${'x'.repeat(100000)}`))
            attempt(() => { location.hash = 'x'.repeat(100000) + Math.random() })
            frame.remove()
          }
        }, 1)
        """,
    ),
    "forged_answers": Hostile(
        "answer the harness in its own words, with what it cannot read",
        """
        const answer = () => document.dispatchEvent(new CustomEvent('quartet-answer', { detail: {
          value: { goal: { toString: 'none' }, done: 'yes', reward: 'much', reason: [1] } } }))
        for (const name of ['outcome', 'quiet', 'done', 'ready']) document.addEventListener(`quartet-${name}`, answer)
        """,
    ),
    "nan_reward": Hostile(
        "end with a reward that is no number", "addEventListener('click', () => core.endEpisode(NaN), true)"
    ),
    "loops": Hostile(
        "block the window for ever once the episode is over",
        "addEventListener('click', () => setTimeout(() => { for (;;); }, 700))",
    ),
    "leaves": Hostile(
        "replace itself by another document", "setTimeout(() => { location = 'data:text/html,gone' }, 300)"
    ),
    "rewrites": Hostile("replace its own content", "addEventListener('click', () => document.write('gone'), true)"),
    "workers": Hostile(
        "go on in workers",
        """
        const url = URL.createObjectURL(new Blob(['for (;;);']))
        attempt(() => new Worker(url))
        attempt(() => new SharedWorker(url))
        attempt(() => navigator.serviceWorker.register(url).catch(() => 0))
        """,
    ),
    "crashes": Hostile(
        "nest elements until something gives",
        """
        let at = document.getElementById('area')
        for (let i = 0; i < 20000; i++) { const child = document.createElement('span'); at.append(child); at = child }
        at.append('deep')
    """,
    ),
}

CONTROLS = """
  document.getElementById('area').innerHTML += `
    <a href="#">hash</a> <a href="http://127.0.0.1:PORT/">http</a> <a href="about:blank">blank</a>
    <a href="data:text/html,hi">data</a> <a href="javascript:location='about:blank'">script</a>
    <a href="http://127.0.0.1:PORT/" target="_blank">new</a> <a href="http://127.0.0.1:PORT/" target="_top">top</a>
    <a href="file://FILE">file</a> <a href="">empty</a> <a download href="data:,x">download</a>
    <a href="mailto:x@y">mail</a>
    <form id="f"><input placeholder="plain"><button>send</button></form>
    <form action="http://127.0.0.1:PORT/" method="post"><input placeholder="posted"></form>
    <input type="file"> <input type="date"> <input type="color"> <select><option>a<option>b</select>
    <button onclick="document.write('x')">writes</button> <button onclick="document.open()">reopens</button>
    <button onclick="document.documentElement.remove()">removes</button> <button onclick="core = null">breaks</button>
    <button onclick="location.reload()">reloads</button> <button onclick="history.back()">backs</button>
    <button onclick="alert(1)">alerts</button> <button onclick="print()">prints</button>
    <button onclick="window.open('about:blank')">opens</button> <textarea placeholder="area"></textarea>`
"""
"""Controls with which a policy may do harm on a page that means none."""


CLICKED = {
    "clobbers": """
      for (const name of ['body', 'querySelectorAll', 'getElementById', 'elementFromPoint', 'createElement', 'images',
          'activeElement', 'addEventListener', 'removeEventListener', 'dispatchEvent']) {
        document.getElementById('area').append(Object.assign(document.createElement('img'), { name }))
      }""",
    "clobbers_forms": """
      const form = document.createElement('form')
      for (const name of ['children', 'childNodes', 'matches', 'getAttribute', 'checkVisibility', 'tagName',
          'getBoundingClientRect', 'parentElement', 'querySelector', 'textContent']) {
        form.append(Object.assign(document.createElement('input'), { name, value: 'x' }))
      }
      document.getElementById('area').append(form)""",
    "floods": """
      for (let i = 0; i < 100; i++) history.replaceState(0, '', `#${i}${'x'.repeat(100000)}`)""",
    "grows": "document.getElementById('query').textContent = 'x'.repeat(6e6)",
    "forges": """
      document.addEventListener('quartet-outcome', () => document.dispatchEvent(new CustomEvent('quartet-answer', {
        detail: { value: { goal: { toString: 'none' }, done: 'yes', reward: 'much', reason: [1] } } })))""",
    "leaves_late": "setTimeout(() => { location = 'data:text/html,gone' }, 1500)",
    "breaks": "window.core = WOB_DONE_GLOBAL = null",
    "empties": "document.replaceChildren()",
}
"""Harm that a page does at the first click: by then it is the policy's own episode."""


def write_pages(folder: Path, *, port: int, file: Path) -> None:
    """Write the gallery as task pages, and the page `controls`."""
    scripts = {name: page.script for name, page in GALLERY.items()} | {"controls": CONTROLS}
    for name, text in CLICKED.items():
        scripts[f"clicked_{name}"] = f"addEventListener('click', () => {{ {text} }}, {{ capture: true, once: true }})"
    for name, text in scripts.items():
        script = text.replace("PORT", str(port)).replace("FILE", str(file))
        (folder / f"{name}.html").write_text(PAGE.replace("SCRIPT", script))
