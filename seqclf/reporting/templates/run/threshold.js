(() => {
  const holder = document.getElementById("threshold-points");
  const { points, texts, left, width, bottom, height } = JSON.parse(holder.textContent);
  const slider = document.getElementById("threshold");
  const show = (name, text) => { document.getElementById("threshold-" + name).textContent = text; };
  const share = (value) => (100 * value).toFixed(value > 0 && value < 0.01 ? 2 : 1) + "%";
  const move = () => {
    const [, recall, precision, alerts] = points[slider.value];
    show("value", texts[slider.value]);
    show("recall", share(recall));
    show("precision", precision === null ? "-" : share(precision));
    show("alerts", share(alerts));
    slider.setAttribute("aria-valuetext", "threshold " + texts[slider.value]);
    for (const dot of document.querySelectorAll(".plot i.dot")) {
      dot.style.left = 100 * (left + recall * width) + "%";
      dot.style.top = 100 * (1 - bottom - (precision === null ? 1 : precision) * height) + "%";
    }
  };
  slider.addEventListener("input", move);
  move();
})();
