// Made the golden states of this folder. Written for version 0.1.0 (commit 049358e) and not built by the project: the
// files prove that states which 0.1.0 saved can still be loaded, so they are never made again.
//
// In a checkout of that version, after `cmake --preset release && cmake --build --preset release`, with STATES for this
// folder:
//
//   g++ -std=c++20 -O2 -Iinclude -I$STATES $STATES/make_with_0_1_0.cc build/release/libsparsewire.a -lfmt -lhwy
//   -pthread \
//       $(mpicxx --showme:link) -o make_states && ./make_states $STATES
//
//   sparsewire train --problem downlink_toy:dim=40 --workers 3 --sparsifier topk:k=4 --downlink topk:k=6 \
//       --optimiser sgd:momentum=0.9 --lr 0.02 --seed 5 --checkpoint-every 10 --keep 1 --checkpoint-dir checkpoint \
//       --steps 10
//
// wrote checkpoint/; the same with --steps 20 --resume --json resumed.json, in a copy of it, wrote resumed.json.
#include <sparsewire/sifter.h>
#include <sparsewire/transport.h>
#include <sparsewire/worker.h>

#include <mutex>

#include "old_state.h"

using namespace sparsewire;
using namespace sparsewire::old_state;

namespace {

std::string folder;

Layout layout() {
  std::vector<Tensor> tensors;
  for (const auto& [name, size] : kTensors) tensors.push_back({name, size, 0});
  return Layout(std::move(tensors));
}

// Records: sparsifier, feedback, scope, number of steps before the state was saved, state; then indices and values of
// each step; then memory and velocity.
void save_sifter(const std::string& name, const std::string& sparsifier, const std::string& feedback,
                 Scope scope = Scope::model, int steps_before = kStepsBefore) {
  Writer file(folder + "/sifter_" + name + ".bin");
  Sifter sifter(sparsifier, feedback, {.layout = layout(), .scope = scope, .rank = 1, .ranks = 3, .seed = 4});
  SparseVector sent;
  const auto step = [&](int number) {
    sifter.sift(Gradient(gradient_of(number, 1)), sent, lr_of(number));
    sifter.observe(sent, made_up_update(sent.values));
  };
  for (int i = 0; i < steps_before; ++i) step(i);
  file.text(sparsifier);
  file.text(feedback);
  file.text(scope == Scope::model ? "model" : "layer");
  file.text(std::to_string(steps_before));
  file.array(sifter.save());
  for (int i = 0; i < kStepsAfter; ++i) {
    step(steps_before + i);
    file.array(sent.indices);
    file.array(sent.values);
  }
  file.array(sifter.memory());
  file.array(sifter.velocity());
}

// Records: sparsifier, feedback, exchange, codec, downlink, downlink codec, the states of all ranks; then indices and
// values of the update of each step; then the memories of all ranks, and what the servers owe in all (f64;
// empty without a downlink).
void save_workers(const std::string& name, WorkerConfig config) {
  Writer file(folder + "/worker_" + name + ".bin");
  for (const std::string& spec :
       {config.sparsifier, config.feedback, config.exchange, config.codec, config.downlink, config.downlink_codec}) {
    file.text(spec);
  }
  std::vector<std::vector<std::byte>> states(kRanks);
  std::vector<SparseVector> updates(kStepsAfter);
  std::vector<std::vector<float>> memories(kRanks);
  std::vector<double> owed(layout().dim());
  std::mutex mutex;
  run_on_threads(kRanks, [&](Transport& transport) {
    const int rank = transport.rank();
    WorkerConfig mine = config;
    mine.weight = rank == 1 ? 2 : 1;
    mine.seed = 6;
    mine.check_every = 1;
    Worker worker(mine, layout(), transport);
    std::vector<float> update(layout().dim());
    for (int i = 0; i < kStepsBefore + kStepsAfter; ++i) {
      worker.step(Gradient(gradient_of(i, rank)), update, {.lr = lr_of(i)});
      if (i + 1 == kStepsBefore) states[rank] = worker.save();
      if (i >= kStepsBefore && rank == 0) updates[i - kStepsBefore] = worker.update();
    }
    memories[rank].assign(worker.memory().begin(), worker.memory().end());
    const std::lock_guard lock(mutex);
    worker.add_server_memory(owed);
  });
  for (const auto& state : states) file.array(state);
  for (const SparseVector& update : updates) {
    file.array(update.indices);
    file.array(update.values);
  }
  for (const auto& memory : memories) file.array(memory);
  if (config.downlink.empty()) owed.clear();
  file.array(owed);
}

}  // namespace

int main(int, char** arguments) {
  folder = arguments[1];
  save_sifter("topk", "topk:ratio=0.05", "ef");
  save_sifter("topk_decay_lr", "topk:ratio=0.05", "ef:decay=0.9,scale=lr");
  save_sifter("topk_none", "topk:ratio=0.05", "none");
  save_sifter("topk_momentum", "topk:ratio=0.05", "momentum:m=0.9,clip=2");
  save_sifter("topk_layer", "topk:ratio=0.05,dense_below=10", "ef", Scope::layer);
  save_sifter("topk_chunk", "topk:ratio=0.1,chunk=64", "ef");
  save_sifter("topk_warmup", "topk:ratio=0.05,warmup_from=0.5,warmup_steps=5", "ef:decay=0.9");
  save_sifter("randomk", "randomk:ratio=0.1", "ef");
  save_sifter("randomk_shared", "randomk:ratio=0.1,shared=true", "ef:scale=lr");
  save_sifter("randomk_momentum", "randomk:ratio=0.1", "momentum:m=0.9");
  save_sifter("rtopk", "rtopk:ratio=0.05,r_ratio=0.2", "ef");
  save_sifter("rtopk_none", "rtopk:ratio=0.05,r_ratio=0.2", "none");
  save_sifter("threshold", "threshold:lambda=3", "ef");
  save_sifter("threshold_calibrating", "threshold:ratio=0.05,calibrate=40", "ef", Scope::model, 38);
  save_sifter("threshold_measured", "threshold:ratio=0.05,calibrate=2", "ef:decay=0.9,scale=lr");
  save_sifter("threshold_just_measured", "threshold:ratio=0.05,calibrate=3", "ef");
  save_sifter("threshold_sqrt", "threshold:ratio=0.05,rule=sqrt", "ef");
  save_sifter("threshold_sqrt_pending", "threshold:ratio=0.05,rule=sqrt", "ef:scale=lr", Scope::model, 0);
  save_sifter("threshold_momentum", "threshold:ratio=0.05,calibrate=2", "momentum:m=0.9,clip=2");
  save_sifter("regtopk", "regtopk:ratio=0.05,mu=1", "ef");
  save_sifter("regtopk_form_b", "regtopk:ratio=0.1,mu=4,form=b", "ef:decay=0.9");
  save_sifter("regtopk_momentum", "regtopk:ratio=0.05,mu=0.5,q=0.3,weight=0.7", "momentum:m=0.9");
  save_sifter("dense", "dense", "ef");
  save_sifter("dense_momentum", "dense", "momentum:m=0.9,clip=2");

  const std::string topk = "topk:ratio=0.05";
  save_workers("dense", {.sparsifier = "dense", .exchange = "dense"});
  save_workers("dense_topk", {.sparsifier = topk, .exchange = "dense"});
  save_workers("allgather", {.sparsifier = topk, .exchange = "allgather"});
  save_workers("allgather_bf16", {.sparsifier = topk, .exchange = "allgather", .codec = "auto:values=bf16"});
  save_workers("allgather_threshold", {.sparsifier = "threshold:ratio=0.05,calibrate=4", .exchange = "allgather"});
  save_workers("server", {.sparsifier = topk, .feedback = "ef:decay=0.9,scale=lr", .exchange = "server"});
  save_workers("server_downlink", {.sparsifier = topk, .exchange = "server", .downlink = "topk:ratio=0.1"});
  save_workers("sharded", {.sparsifier = "randomk:ratio=0.1", .exchange = "sharded"});
  save_workers("sharded_regtopk", {.sparsifier = "regtopk:ratio=0.05,mu=1", .exchange = "sharded"});
  save_workers("sharded_downlink",
               {.sparsifier = topk, .feedback = "momentum:m=0.9,clip=2", .exchange = "sharded", .downlink = topk});
  save_workers("sharded_downlink_bf16", {.sparsifier = topk,
                                         .exchange = "sharded",
                                         .codec = "auto:values=bf16",
                                         .downlink = "rtopk:ratio=0.05,r_ratio=0.2",
                                         .downlink_codec = "auto:values=bf16"});
  save_workers("auto_sparse", {.sparsifier = topk, .exchange = "auto"});
  save_workers("auto_dense", {.sparsifier = "topk:ratio=1", .exchange = "auto"});
  save_workers("auto_varying_sparse", {.sparsifier = "threshold:lambda=4", .exchange = "auto"});
  save_workers("auto_varying_dense", {.sparsifier = "threshold:lambda=0.0001", .exchange = "auto"});
}
