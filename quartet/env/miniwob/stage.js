// The stage: the window's own document, as large as the picture. It holds one frame, as large as the window that the
// tasks were made for; every episode gets a new frame.
//
// The frame is sandboxed and has its own origin: its scripts reach neither this document nor later frames, open no
// windows
// or dialogs, and end with the frame, timers included. It inherits the policy below, which forbids all loading: a task
// is
// complete.
(() => {
  const STAGE = `<meta http-equiv="Content-Security-Policy"
      content="default-src 'unsafe-inline' 'unsafe-eval' data: blob:; webrtc 'block'"><style>
    html { scrollbar-width: none } body { margin: 0 } #view { width: 160px; overflow: clip }
    iframe { display: block; border: 0; width: 500px; height: 320px }</style><div id="view"></div>`
  document.documentElement.innerHTML = STAGE

  const texts = {} // family -> HTML; name of a script or style sheet -> its text
  const whole = (html) => html.replace(/<!--part (\S+)-->/g, (_, name) => texts[name])

  let frame, family

  // Replace the frame; the harness in the new one then asks for the page of that family.
  function show(name, newTexts) {
    Object.assign(texts, newTexts)
    family = name
    frame = document.createElement('iframe')
    frame.sandbox = 'allow-scripts allow-forms'
    document.getElementById('view').replaceChildren(frame)
    frame.contentWindow.focus()
  }

  // Services for the harness in the frame, requested through the port that it sends.
  const services = {
    page: () => ({ watch: texts.watch, html: whole(texts[family]) }),
    view: () => ({ left: -scrollX, top: -scrollY, width: innerWidth, height: innerHeight }),
    top: () => void scrollTo(0, 0),
  }
  window.onmessage = ({ source, ports: [port] }) => {
    if (source !== frame?.contentWindow || !port) return
    port.onmessage = ({ data }) => port.postMessage(Object.hasOwn(services, data) ? services[data]() : undefined)
  }

  window.stage = { show }
})()
