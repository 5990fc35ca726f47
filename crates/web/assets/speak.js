'use strict';
// Type, hear while it is made, see, download. Events carry each sentence with its mel and tokens as soon as it is made.
const $ = id => document.getElementById(id);
const form = $('form'), problem = $('problem'), status = $('status');
let lang = 'en', current = null, context = null, serverGone = false;

// ---- language

function text(key, values = {}) {
  // By a function: a value with `$&` in it is no pattern.
  return Object.entries(values).reduce((all, [name, value]) => all.replace(`{${name}}`, () => value), TEXTS[lang][key]);
}

function setLanguage(next) {
  lang = next;
  document.documentElement.lang = lang;
  document.documentElement.dir = lang === 'fa' ? 'rtl' : 'ltr';
  for (const element of document.querySelectorAll('[data-text]')) element.textContent = text(element.dataset.text);
  $('text').placeholder = text('placeholder');
  $('language').textContent = text('other');
  $('language').lang = lang === 'fa' ? 'en' : 'fa';
  try { localStorage.setItem('lang', lang); } catch { /* a browser may forbid it */ }
  count();
  if (!current) say('ready');
}

function say(key, values) { status.textContent = text(key, values); }

function complain(message) {
  problem.hidden = !message;
  problem.textContent = message || '';
}

function count() { $('count').textContent = text('count', { n: [...$('text').value].length }); }

// ---- the server

function headers(more) {
  const token = $('token').value;
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

async function explain(response) {
  let error = {};
  try { error = (await response.json()).error || {}; } catch { /* not ours */ }
  const known = (error.known || []).join(lang === 'fa' ? '، ' : ', ');
  return TEXTS[lang][error.code] ? text(error.code, { known }) : text('failed', { message: error.message || response.status });
}

function options(select, names, chosen) {
  select.replaceChildren(...names.map(name => {
    const option = document.createElement('option');
    option.value = option.textContent = name;
    option.selected = name === chosen;
    return option;
  }));
}

let voices = [];

function showVoices(chosen) {
  const model = $('model').value;
  options($('voice'), voices.filter(voice => voice.model === model).map(voice => voice.id), chosen || $('voice').value);
  $('upload-label').hidden = !voices.some(voice => voice.model === model && voice.kind !== 'only');
}

async function loadVoices(chosen) {
  const get = path => fetch(path, { headers: headers({}) });
  const [models, all] = await Promise.all([get('/v1/models'), get('/v1/voices')]);
  if (!models.ok) {
    if (models.status === 401) { $('more').open = true; $('token').focus(); }
    complain(await explain(models));
    return false;
  }
  const names = (await models.json()).data.map(model => model.id);
  voices = (await all.json()).data;
  options($('model'), names, $('model').value);
  showVoices(chosen);
  $('server').textContent = text('models', { n: names.length });
  return true;
}

/** Notices when the server is gone and when it is back. */
async function look() {
  try {
    const response = await fetch('/readyz');
    if (!response.ok) throw new Error(response.status);
    if (serverGone) {
      serverGone = false;
      complain('');
      await loadVoices();
      say('back');
    }
  } catch { gone(); }
  setTimeout(look, serverGone ? 1000 : 5000);
}

function gone() {
  serverGone = true;
  $('server').textContent = '';
  complain(text('gone'));
}

// ---- sound

/** One text as it is spoken: its samples, and what plays of it. */
class Take {
  constructor(title) {
    Object.assign(this, { title, pieces: [], samples: 0, rate: 22050, sources: [], until: 0, over: false, controller: new AbortController() });
  }

  get seconds() { return this.samples / this.rate; }

  add(pcm, rate) {
    this.rate = rate;
    this.pieces.push(pcm);
    this.samples += pcm.length;
    this.play(pcm);
  }

  play(pcm) {
    if (!context || !pcm.length) return;
    const buffer = context.createBuffer(1, pcm.length, this.rate);
    buffer.copyToChannel(Float32Array.from(pcm, x => x / 32768), 0);
    const source = context.createBufferSource();
    source.buffer = buffer;
    source.connect(context.destination);
    this.until = Math.max(this.until, context.currentTime + 0.05);
    source.start(this.until);
    this.until += buffer.duration;
    this.sources.push(source);
  }

  replay() { this.silence(); this.until = 0; this.pieces.forEach(piece => this.play(piece)); }

  silence() {
    for (const source of this.sources) { try { source.stop(); } catch { /* it has ended */ } }
    this.sources = [];
  }

  wav() {
    const header = new DataView(new ArrayBuffer(44));
    const word = (at, letters) => [...letters].forEach((c, n) => header.setUint8(at + n, c.charCodeAt(0)));
    word(0, 'RIFF'); header.setUint32(4, 36 + 2 * this.samples, true); word(8, 'WAVEfmt ');
    header.setUint32(16, 16, true); header.setUint16(20, 1, true); header.setUint16(22, 1, true);
    header.setUint32(24, this.rate, true); header.setUint32(28, 2 * this.rate, true);
    header.setUint16(32, 2, true); header.setUint16(34, 16, true); word(36, 'data'); header.setUint32(40, 2 * this.samples, true);
    return new Blob([header, ...this.pieces], { type: 'audio/wav' });
  }
}

function bytes(base64) { return Uint8Array.from(atob(base64), c => c.charCodeAt(0)); }

/** The events of a response, one JSON object each. */
async function* events(response) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  for (let rest = ''; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split('\n\n');
    rest = parts.pop();
    for (const part of parts) if (part.startsWith('data: ')) yield JSON.parse(part.slice(6));
  }
}

async function speak() {
  stop();
  complain('');
  if (!$('text').value.trim()) { complain(text('empty_text')); return; }
  if (!form.reportValidity()) return;
  // A browser lets sound begin by a key or a click only.
  context = context || new AudioContext();
  context.resume();
  const take = current = new Take($('text').value.trim());
  const began = performance.now();
  let first = null, sentences = 0;
  busy(true);
  say('working');
  $('download').hidden = true;
  try {
    const response = await fetch('/v1/audio/speech', {
      method: 'POST', signal: take.controller.signal, headers: headers({ 'Content-Type': 'application/json' }),
      body: JSON.stringify({
        model: $('model').value || undefined, voice: $('voice').value || undefined, input: take.title,
        response_format: 'pcm', stream_format: 'sse', details: true, speed: Number($('speed').value), seed: Number($('seed').value) || 0,
      }),
    });
    if (!response.ok) { complain(await explain(response)); say('ready'); return; }
    for await (const event of events(response)) {
      if (event.type === 'speech.audio.done') take.over = true;
      if (event.type !== 'speech.audio.delta') continue;
      const pcm = bytes(event.audio);
      take.add(new Int16Array(pcm.buffer), event.details.sample_rate);
      first = first ?? (performance.now() - began) / 1000;
      sentences += 1;
      draw(event.details);
      say('playing', { n: sentences, seconds: take.seconds.toFixed(1) });
    }
    if (!take.over) throw new Error('cut off');
    say('done', { seconds: take.seconds.toFixed(1), first: (first ?? 0).toFixed(2) });
    remember(take);
  } catch (error) {
    if (current !== take) { /* another one has begun */ }
    else if (error.name === 'AbortError') say('stopped', { seconds: take.seconds.toFixed(1) });
    else { complain(text('cut_off')); say('ready'); }
    if (take.samples) remember(take);
  } finally {
    // Another one may have begun meanwhile.
    if (current === take) busy(false);
  }
}

function stop() {
  if (!current) return;
  current.controller.abort();
  current.silence();
  busy(false);
}

function busy(is) {
  $('stop').disabled = !is && !current;
  form.setAttribute('aria-busy', String(is));
}

// ---- what is seen

// A few points of viridis, as in the images that training writes.
const COLORS = [[68, 1, 84], [65, 68, 135], [42, 120, 142], [34, 168, 132], [122, 209, 81], [253, 231, 37]];

function color(shade) {
  const place = shade / 255 * (COLORS.length - 1), at = Math.min(Math.floor(place), COLORS.length - 2), part = place - at;
  return COLORS[at].map((value, n) => value + part * (COLORS[at + 1][n] - value));
}

let drawn = null;

function draw(details) {
  drawn = details;
  const { bands, frames, tokens, durations } = details, mel = bytes(details.mel);
  const canvas = $('mel'), across = 4, up = 3, label = 22;
  canvas.width = frames * across;
  canvas.height = bands * up + label;
  const paint = canvas.getContext('2d');
  const image = paint.createImageData(frames, bands);
  for (let band = 0; band < bands; band++) {
    for (let frame = 0; frame < frames; frame++) {
      const [red, green, blue] = color(mel[band * frames + frame]), at = 4 * ((bands - 1 - band) * frames + frame);
      image.data.set([red, green, blue, 255], at);
    }
  }
  const small = new OffscreenCanvas(frames, bands);
  small.getContext('2d').putImageData(image, 0, 0);
  paint.imageSmoothingEnabled = false;
  paint.drawImage(small, 0, 0, frames * across, bands * up);
  const style = getComputedStyle(document.body);
  paint.font = '13px system-ui, sans-serif';
  paint.textAlign = 'center';
  let start = 0;
  tokens.forEach((token, n) => {
    const width = durations[n] * across, x = start * across;
    paint.fillStyle = 'rgb(255 255 255 / 0.75)';
    paint.fillRect(x, 0, 1, bands * up);
    paint.fillStyle = style.color;
    // What has no room is left out: a silence between two letters.
    if (token.trim() && paint.measureText(token).width <= width + 2) paint.fillText(token, x + width / 2, bands * up + 16);
    start += durations[n];
  });
  canvas.setAttribute('aria-label', text('spectrogram_of', { sentence: details.sentence }));
  $('sentence').textContent = details.sentence;
  $('seen').hidden = false;
}

function remember(take) {
  const address = URL.createObjectURL(take.wav());
  const name = `tandem-${Date.now()}.wav`;
  Object.assign($('download'), { href: address, download: name, hidden: false });
  const item = document.createElement('li');
  const title = document.createElement('bdi');
  title.textContent = take.title.length > 120 ? `${take.title.slice(0, 120)}…` : take.title;
  const about = document.createElement('span');
  about.className = 'quiet';
  const speaker = document.createElement('bdi');
  speaker.textContent = $('voice').value;
  const length = document.createElement('bdi');
  length.textContent = text('length', { seconds: take.seconds.toFixed(1) });
  about.append(speaker, ' · ', length);
  const again = document.createElement('button');
  again.type = 'button';
  again.dataset.text = 'again';
  again.textContent = text('again');
  again.addEventListener('click', () => { stop(); current = take; busy(false); take.replay(); });
  const save = document.createElement('a');
  Object.assign(save, { href: address, download: name });
  save.append(Object.assign(document.createElement('bdi'), { textContent: 'WAV' }));
  item.append(title, ' ', about, ' ', again, ' ', save);
  $('history').prepend(item);
  $('past').hidden = false;
}

// ---- controls

form.addEventListener('submit', event => { event.preventDefault(); speak(); });
$('stop').addEventListener('click', stop);
$('language').addEventListener('click', () => setLanguage(lang === 'fa' ? 'en' : 'fa'));
$('text').addEventListener('input', count);
$('model').addEventListener('change', () => showVoices());
$('token').addEventListener('change', () => { complain(''); loadVoices(); });
$('speed').addEventListener('input', () => { $('speed-value').textContent = Number($('speed').value).toFixed(2); });
$('upload').addEventListener('change', async () => {
  const file = $('upload').files[0];
  if (!file) return;
  const name = file.name.replace(/\.[^.]*$/, '').replace(/[^\p{L}\p{N}_. -]/gu, '-').slice(0, 64) || 'voice';
  const address = `/v1/voices?name=${encodeURIComponent(name)}&model=${encodeURIComponent($('model').value)}`;
  const response = await fetch(address, { method: 'POST', headers: headers({ 'Content-Type': 'application/octet-stream' }), body: file });
  if (!response.ok) { complain(await explain(response)); return; }
  complain('');
  await loadVoices(name);
  say('uploaded', { name });
});
// Its letters have the color of the page.
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { if (drawn) draw(drawn); });
document.addEventListener('keydown', event => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) { event.preventDefault(); speak(); }
  if (event.key === 'Escape') stop();
});

let wanted = new URLSearchParams(location.search).get('lang');
try { wanted = wanted || localStorage.getItem('lang'); } catch { /* a browser may forbid it */ }
setLanguage(TEXTS[wanted] ? wanted : navigator.language.startsWith('fa') ? 'fa' : 'en');
loadVoices().catch(gone).then(() => setTimeout(look, serverGone ? 1000 : 5000));
