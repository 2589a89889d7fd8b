// What is seen of the drawing: zoom, and moving it by the pointer.

class Viewport {
  constructor(box) {
    this.box = box;
    this.dragged = 0;
    this.listen();
  }

  /** A drawing in place of the one before, where that was. */
  take(layer, layout) {
    this.layer = layer;
    this.layout = layout;
    this.box.replaceChildren(draw("svg", { "aria-hidden": "false" }, layer));
    if (this.at) this.move();
  }

  /** Whether what the pointer did last is no click. */
  get isDragged() {
    return this.dragged >= 4;
  }

  move() {
    this.layer.style.transform = `translate(${this.at.x}px,${this.at.y}px) scale(${this.at.scale})`;
    this.box.classList.toggle("far", this.at.scale < 0.55);
  }

  glide() {
    this.box.classList.add("gliding");
    clearTimeout(this.gliding);
    this.gliding = setTimeout(() => this.box.classList.remove("gliding"), 260);
    this.move();
  }

  size() {
    const size = this.box.getBoundingClientRect();
    return [size.width || 900, size.height || 500];
  }

  /** All of it if that can be read, else its beginning. */
  fit(all = false) {
    const [width, height] = this.size(), margin = 24;
    const whole = Math.min((width - 2 * margin) / this.layout.width, (height - 2 * margin) / this.layout.height, 1.1);
    const scale = all ? whole : Math.max(whole, Math.min(0.8, Math.max((width - 2 * margin) / this.layout.width, 0.5)));
    const wide = this.layout.width * scale + 2 * margin > width;
    const left = wide ? width / 2 - this.layout.x[0] * scale : (width - this.layout.width * scale) / 2;
    const top = this.layout.height * scale + 2 * margin > height ? margin : (height - this.layout.height * scale) / 2;
    this.at = { x: left, y: top, scale };
    this.glide();
  }

  zoom(factor, x, y) {
    const [width, height] = this.size();
    const [cx, cy] = [x ?? width / 2, y ?? height / 2];
    const scale = Math.min(4, Math.max(0.03, this.at.scale * factor));
    const ratio = scale / this.at.scale;
    this.at = { scale, x: cx - (cx - this.at.x) * ratio, y: cy - (cy - this.at.y) * ratio };
    this.move();
  }

  /** Move so that an item is well inside. */
  show(place) {
    const [width, height] = this.size(), { x, y, scale } = this.at;
    const [px, py] = [this.layout.x[place] * scale + x, this.layout.y[place] * scale + y];
    const [mx, my] = [Math.min(110, width / 3), Math.min(70, height / 3)];
    if (px > mx && px < width - mx && py > my && py < height - my) return;
    this.at = { scale, x: width / 2 - this.layout.x[place] * scale, y: height / 2 - this.layout.y[place] * scale };
    this.glide();
  }

  listen() {
    const pointers = new Map();
    let apart = 0;
    this.box.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, [event.clientX, event.clientY]);
      this.dragged = 0;
      apart = 0;
    });
    window.addEventListener("pointermove", (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      pointers.set(event.pointerId, [event.clientX, event.clientY]);
      if (pointers.size === 2) {
        const [[ax, ay], [bx, by]] = [...pointers.values()], edge = this.box.getBoundingClientRect();
        const distance = Math.hypot(ax - bx, ay - by);
        if (apart) this.zoom(distance / apart, (ax + bx) / 2 - edge.left, (ay + by) / 2 - edge.top);
        apart = distance;
        this.dragged = Infinity;
        return;
      }
      this.dragged += Math.abs(event.clientX - before[0]) + Math.abs(event.clientY - before[1]);
      if (!this.isDragged) return;
      this.box.classList.add("moving");
      this.at.x += event.clientX - before[0];
      this.at.y += event.clientY - before[1];
      this.move();
    });
    const end = (event) => {
      pointers.delete(event.pointerId);
      this.box.classList.remove("moving");
    };
    window.addEventListener("pointerup", end);
    window.addEventListener("pointercancel", end);
    this.box.addEventListener("wheel", (event) => {
      event.preventDefault();
      const edge = this.box.getBoundingClientRect();
      if (event.shiftKey) {
        this.at.x -= event.deltaX + event.deltaY;
        this.move();
      } else this.zoom(Math.exp(-event.deltaY / 450), event.clientX - edge.left, event.clientY - edge.top);
    }, { passive: false });
  }
}
