// The stage: the window's own document, as large as the picture. It holds one frame, as large as the window that the tasks
// were made for, and every episode gets a new one.
//
// The frame is sandboxed, so it has an origin of its own: what runs in it reaches neither this document nor the frames after
// it, opens no windows and no dialogs, and ends with the frame, timers included. It inherits the policy below: a task has
// all its parts inside, so there is nothing that it may load.
(() => {
  const STAGE = `<meta http-equiv="Content-Security-Policy"
      content="default-src 'unsafe-inline' 'unsafe-eval' data: blob:; webrtc 'block'"><style>
    html { scrollbar-width: none } body { margin: 0 } #view { width: 160px; overflow: clip }
    iframe { display: block; border: 0; width: 500px; height: 320px }</style><div id="view"></div>`
  document.documentElement.innerHTML = STAGE

  const texts = {} // family -> HTML; name of a script or style sheet -> what stands in its place in the HTML
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

  // What the harness in the frame may ask for, through the port that it sends.
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
