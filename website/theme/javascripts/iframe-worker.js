// A page opened as a file may start no worker, and the search is one: there a hidden frame takes its place.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.appendChild(this.frame)
      window.addEventListener("message", event => {
        if (event.source === this.frame.contentWindow)
          this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      })
      this.ready = new Promise(resolve => this.frame.addEventListener("load", resolve))
      const inside = this.frame.contentDocument
      inside.open()
      inside.write(`<script>postMessage = data => parent.postMessage(data, "*")</script><script src="${url}"></script>`)
      inside.close()
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
