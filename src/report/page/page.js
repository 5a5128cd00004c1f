const data = JSON.parse(document.getElementById("sparsewire-data").textContent);
const heading = document.createElement("h1");
heading.textContent = data.title;
document.getElementById("report").append(heading);
