// SPDX-License-Identifier: Apache-2.0
//
// RankGroup: see ranks.h. Its messages go through a Python object, the transport:
//
//     start(is_send, rank, tag, memory, piece)      memory: a memoryview, valid until the piece is completed
//     completed() ──▶ [piece, …]                    raises an exception, with the attribute `rank` if the rank is known
//     failed                                        whether a rank has failed; set before close()
//     close(finished)                               finished: whether no message is in flight
//
// Read next: python/regard/distributed_transports.py, regard/distributed/attention.h.
#include "ranks.h"

#include <nanobind/stl/string.h>
#include <unistd.h>

#include <map>
#include <utility>
#include <vector>

#include "module.h"
#include "outputs.h"
#include "regard/error.h"

namespace regard::python {
namespace {

// The maximum size of a message: MPI counts the bytes in an int.
constexpr std::size_t kPieceBytes = std::size_t{1} << 30;

thread_local RankGroup* current_group = nullptr;

std::string text_of_error(const nb::python_error& error) {
  std::string text = nb::str(error.value()).c_str();
  return text.empty() ? nb::cast<std::string>(error.type().attr("__name__")) : text;
}

class PythonTransport final : public Transport {
 public:
  // The caller must hold the interpreter's lock.
  explicit PythonTransport(nb::object object)
      : object_(std::move(object)),
        rank_(nb::cast<Index>(object_.attr("rank"))),
        num_ranks_(nb::cast<Index>(object_.attr("num_ranks"))),
        may_use_thread_(nb::cast<bool>(object_.attr("may_use_thread"))) {}
  ~PythonTransport() override {
    const nb::gil_scoped_acquire held;
    try {
      object_.attr("close")(tickets_.empty());
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("regard.distributed.close");
    }
    object_.reset();
  }

  Index rank() const override { return rank_; }
  Index num_ranks() const override { return num_ranks_; }
  bool may_use_thread() const override { return may_use_thread_; }
  void start_send(Index to, int tag, std::span<const std::byte> message, std::uint64_t ticket) override {
    // PyTorch requires writable memory, but only reads it.
    start(true, to, tag, {const_cast<std::byte*>(message.data()), message.size()}, ticket);
  }
  void start_receive(Index from, int tag, std::span<std::byte> message, std::uint64_t ticket) override {
    start(false, from, tag, message, ticket);
  }
  void completed(std::vector<std::uint64_t>& tickets) override {
    if (tickets_.empty()) return;
    with_python([&] {
      for (const nb::handle piece : nb::list(object_.attr("completed")())) {
        const auto found = tickets_.find(nb::cast<std::uint64_t>(piece));
        if (found == tickets_.end()) continue;
        const auto left = num_pieces_.find(found->second);
        if (--left->second == 0) {
          tickets.push_back(found->second);
          num_pieces_.erase(left);
        }
        tickets_.erase(found);
      }
    });
  }

 private:
  void start(bool is_send, Index peer, int tag, std::span<std::byte> message, std::uint64_t ticket) {
    with_python([&] {
      std::size_t first = 0;
      do {
        const std::span<std::byte> bytes = message.subspan(first, std::min(kPieceBytes, message.size() - first));
        static char nothing;
        const nb::object memory =
            nb::steal(PyMemoryView_FromMemory(bytes.empty() ? &nothing : reinterpret_cast<char*>(bytes.data()),
                                              static_cast<Py_ssize_t>(bytes.size()), PyBUF_WRITE));
        if (!memory.is_valid()) throw nb::python_error();
        const std::uint64_t piece = next_piece_++;
        tickets_[piece] = ticket;
        ++num_pieces_[ticket];
        object_.attr("start")(is_send, peer, tag, memory, piece);
        first += bytes.size();
      } while (first < message.size());
    });
  }
  // Calls `call` with the interpreter's lock and converts Python exceptions, which are destroyed before its release.
  template <class Call>
  void with_python(const Call& call) {
    const nb::gil_scoped_acquire held;
    std::string text;
    Index rank = -1;
    bool interrupted = false;
    try {
      return call();
    } catch (const nb::python_error& error) {
      text = text_of_error(error);
      interrupted = !error.matches(PyExc_Exception);
      const nb::object of = nb::getattr(error.value(), "rank", nb::int_(-1));
      if (!nb::try_cast(of, rank)) rank = -1;
    }
    if (interrupted) throw std::runtime_error(text);
    throw RankError(rank, text);
  }

  nb::object object_;
  Index rank_, num_ranks_;
  bool may_use_thread_;
  std::uint64_t next_piece_ = 0;
  std::map<std::uint64_t, std::uint64_t> tickets_;  // for each piece in flight, its ticket
  std::map<std::uint64_t, Index> num_pieces_;       // for each ticket, the number of its pieces in flight
};

// Destroys the ranks during stack unwinding, so that they notify the other ranks of a failure.
void destroy_at_once(std::unique_ptr<Ranks> ranks) {
  struct Leaving {
    std::unique_ptr<Ranks> ranks;
    ~Leaving() { ranks.reset(); }
  };
  try {
    const Leaving leaving{std::move(ranks)};
    throw 0;
  } catch (int) {
  }
}

nb::object sum_in_order_of(nb::handle terms_object) {
  constexpr const char* kName = "sum_in_order";
  RankGroup* const group = RankGroup::current();
  const Array terms(kName, "terms", terms_object);
  const auto sum = [&]<class T>(T) {
    const auto view = terms.view<const T, 2>(kName, "terms");
    Outputs outputs(kName, terms_object);
    outputs.add("sum");
    outputs.allocate("sum", number_type<T>(), {view.shape[1]});
    const auto result = outputs.view<T, 1>("sum");
    const std::span<T> elements(result.data, static_cast<std::size_t>(view.shape[1]));
    group->run(static_cast<double>(view.size()), 0,
               [&](Ranks& ranks, const Runtime& runtime) { sum_in_order(view, elements, ranks, runtime.stop); });
    return outputs.hand_out("sum");
  };
  if (terms.type() == number_type<double>()) return sum(double{});
  return sum(float{});
}

}  // namespace

// Marks the group as busy, and as the current group of this thread, during call().
class RankGroup::Scope {
 public:
  explicit Scope(RankGroup& group) : group_(group), before_(std::exchange(current_group, &group)) {
    group.busy_ = true;
    group.started_ = false;
  }
  ~Scope() {
    group_.busy_ = false;
    current_group = before_;
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  RankGroup& group_;
  RankGroup* before_;
};

RankGroup::RankGroup(nb::object transport, double timeout) : transport_(std::move(transport)), process_(getpid()) {
  auto messages = std::make_unique<PythonTransport>(transport_);
  num_ranks_ = messages->num_ranks();
  may_use_thread_ = messages->may_use_thread();
  const nb::gil_scoped_release released;
  ranks_ =
      std::make_unique<Ranks>(std::move(messages), RanksOptions{.timeout = std::chrono::duration<double>(timeout)});
}

RankGroup::~RankGroup() { static_cast<void>(ranks_.release()); }

bool RankGroup::is_open() const { return ranks_ != nullptr && process_ == getpid(); }

void RankGroup::close(bool at_once) {
  if (!is_open()) return;
  if (busy_) throw std::runtime_error("close: the ranks are in use by another call");
  std::unique_ptr<Ranks> ranks = std::move(ranks_);
  transport_.attr("failed") = failed_ || at_once;
  transport_.reset();
  const nb::gil_scoped_release released;
  if (at_once) return destroy_at_once(std::move(ranks));
  ranks.reset();
}

RankGroup* RankGroup::current() { return current_group; }

nb::object RankGroup::call(const std::string& name, const nb::callable& function, const nb::args& args,
                           const nb::kwargs& kwargs) {
  reject_in_plan(name.c_str());
  if (!is_open())
    reject(name.c_str(), "the ranks were closed, or belong to another process; expected open ranks of this process");
  if (busy_) throw std::runtime_error(name + ": the ranks are in use by another call");
  const Scope scope(*this);
  try {
    return function(*args, **kwargs);
  } catch (const nb::python_error& error) {
    if (!started_ && num_ranks_ > 1) tell(name, error);
    throw;
  }
}

void RankGroup::tell(const std::string& name, const nb::python_error& error) {
  std::string text = text_of_error(error);
  if (!error.matches(PyExc_Exception)) {
    failed_ = true;
    const nb::gil_scoped_release released;
    return ranks_->fail(text);
  }
  if (const std::size_t place = text.find(name + ": "); place != std::string::npos)
    text = text.substr(place + name.size() + 2);
  const bool keep = !error.matches(PyExc_ValueError);
  if (keep) text = nb::cast<std::string>(error.type().attr("__name__")) + ": " + text;
  try {
    run(0, 0, [&](Ranks& ranks, const Runtime& runtime) { reject_call(name, text, ranks, runtime.stop); });
  } catch (const std::exception&) {
    if (!keep) throw;
  }
}

void RankGroup::run(double operations, int num_threads, const std::function<void(Ranks&, const Runtime&)>& divided) {
  started_ = true;
  // Every call, however short, waits for other ranks, and Ctrl-C must be able to end the wait. The call therefore runs
  // in a thread of its own, unless the message-passing library must be called from this thread.
  if (num_ranks_ > 1) operations = may_use_thread_ ? kUnknownOperations : 0;
  python::run(operations, num_threads, [&](const Runtime& runtime) {
    try {
      divided(*ranks_, runtime);
    } catch (const InvalidArgument&) {
      throw;
    } catch (...) {
      failed_ = true;
      throw;
    }
  });
}

Index RankGroup::total(const std::string& name, Index number) {
  Index sum = 0;
  run(0, 0, [&](Ranks& ranks, const Runtime& runtime) {
    for (const Index one : exchange_numbers(name, number, ranks, runtime.stop)) sum += one;
  });
  started_ = false;
  return sum;
}

void bind_ranks(nb::module_& module) {
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void*) {
        try {
          std::rethrow_exception(thrown);
        } catch (const RankError& error) {
          const nb::object type = nb::module_::import_("regard.distributed").attr("RankError");
          PyErr_SetObject(type.ptr(), type(error.what(), error.rank()).ptr());
        }
      },
      nullptr);
  nb::class_<RankGroup>(module, "RankGroup", "A group of ranks that compute together; used by regard.distributed.")
      .def(nb::init<nb::object, double>(), nb::arg("transport"), nb::arg("timeout"),
           "Creates the group of a transport (python/regard/distributed_transports.py). This is a collective call.")
      .def("call", &RankGroup::call, nb::arg("name"), nb::arg("function"), nb::arg("args"), nb::arg("kwargs"),
           nb::sig("def call(self, name: str, function: collections.abc.Callable[..., typing.Any], *args: object, "
                   "**kwargs: object) -> typing.Any"),
           "Calls function(*args, **kwargs), whose operator `name` is divided among the ranks.")
      .def("close", &RankGroup::close, nb::arg("at_once") = false,
           "Waits for the other ranks or, with at_once, notifies them that this rank has failed.")
      .def_prop_ro("num_ranks", &RankGroup::num_ranks);
  module.def("sum_in_order", &sum_in_order_of, nb::arg("terms"),
             nb::sig("def sum_in_order(terms: object) -> typing.Any"),
             "Sums the rows of all ranks in order; only within RankGroup.call().");
}

}  // namespace regard::python
