// SPDX-License-Identifier: Apache-2.0
//
// Array: see arrays.h.
//
//     exporter with a buffer   Py_buffer, held until the call ends
//     torch.Tensor             __dlpack_c_exchange_api__, the same memory in a tenth of the time
//     any other                __dlpack__(max_version=(1, 1), copy=False) or, for producers older than version 1,
//                              __dlpack__(); the deleter is called when the call ends; a capsule that cannot be used
//                              stays unchanged
//
// Read next: new_arrays.cpp.
#include "arrays.h"

#include <bit>
#include <cstring>

#include "dlpack.h"

namespace regard::python {
namespace {

[[noreturn]] void raise(PyObject* type, const char* operator_name, const std::string& what) {
  PyErr_SetString(type, (std::string(operator_name) + ": " + what).c_str());
  throw nb::python_error();
}

// The type that a format string of the struct module denotes; bits is 0 if DLPack has no such number type. Sizes are
// native without a prefix or after '@', and standard after '=' or '<'.
NumberType type_of_format(const char* format, Py_ssize_t item_bytes) {
  if (*format == '@' || *format == '=' || (*format == '<' && std::endian::native == std::endian::little)) ++format;
  const auto bits = static_cast<std::uint8_t>(item_bytes * 8);
  if (*format == 'Z' && (format[1] == 'f' || format[1] == 'd') && format[2] == '\0') return {kComplex, bits};
  if (format[0] == '\0' || format[1] != '\0') return {};
  switch (*format) {
    case '?':
      return {kBool, 8};
    case 'e':
    case 'f':
    case 'd':
      return {kFloat, bits};
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return {kInt, bits};
    case 'B':
    case 'c':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return {kUnsigned, bits};
    default:
      return {};
  }
}

// The interface of the class itself, not of its bases: a subclass may use its memory differently. The last class that
// was looked up is cached.
const dlpack::Exchange* exchange_of(PyTypeObject* type) {
  static PyTypeObject* last = nullptr;
  static const dlpack::Exchange* found = nullptr;
  if (type == last) return found;
  PyObject* const capsule =
      type->tp_dict == nullptr ? nullptr : PyDict_GetItemString(type->tp_dict, "__dlpack_c_exchange_api__");
  const auto* exchange =
      capsule == nullptr || PyCapsule_IsValid(capsule, "dlpack_exchange_api") == 0
          ? nullptr
          : static_cast<const dlpack::Exchange*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  while (exchange != nullptr && exchange->major != dlpack::kMajor) exchange = exchange->older;
  Py_INCREF(type);
  Py_XSETREF(last, type);
  return found = exchange;
}

// For PyTorch: whether the memory holds the negated elements of the tensor, which DLPack does not report.
bool is_negative(PyObject* given) {
  if (!is_a(given, "torch._C.TensorBase")) return false;
  static PyObject* const is_neg = PyUnicode_InternFromString("is_neg");
  const nb::object found = nb::steal(PyObject_CallMethodNoArgs(given, is_neg));
  if (!found.is_valid()) throw nb::python_error();
  return found.ptr() == Py_True;
}

// An empty array may have a null pointer, but an absent view would mean that the option was not given.
char nowhere[1];

}  // namespace

bool is_a(PyObject* object, const char* class_name) {
  PyObject* const bases = Py_TYPE(object)->tp_mro;
  for (Py_ssize_t i = 0; bases != nullptr && i < PyTuple_GET_SIZE(bases); ++i) {
    const char* const name = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i))->tp_name;
    if (std::strcmp(name, class_name) == 0) return true;
  }
  return false;
}

bool is_of_module(PyObject* object, const char* module) {
  nb::object name = nb::getattr(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(object))), "__module__", nb::none());
  if (!nb::isinstance<nb::str>(name)) return false;
  const std::string text = nb::cast<std::string>(name);
  const std::size_t length = std::strlen(module);
  return text.compare(0, length, module) == 0 && (text.size() == length || text[length] == '.');
}

[[noreturn]] void reject(const char* operator_name, const std::string& what) {
  throw std::invalid_argument(std::string(operator_name) + ": " + what);
}

[[noreturn]] void reject_type(const char* operator_name, const std::string& name, nb::handle given,
                              const char* expected) {
  PyErr_Clear();
  raise(PyExc_TypeError, operator_name,
        name + " is of type " + Py_TYPE(given.ptr())->tp_name + "; expected " + expected);
}

std::string text_of(const char* operator_name, const std::string& name, nb::handle given) {
  if (!PyUnicode_Check(given.ptr())) reject_type(operator_name, name, given, "str");
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(given.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    reject(operator_name, name + " contains half of a surrogate pair; expected text that UTF-8 can encode");
  }
  return {text, static_cast<std::size_t>(size)};
}

std::string type_text(NumberType type) {
  const std::string bits = std::to_string(type.bits);
  switch (type.code) {
    case kInt:
      return "int" + bits;
    case kUnsigned:
      return "uint" + bits;
    case kFloat:
      return "float" + bits;
    case kBfloat:
      return "bfloat" + bits;
    case kComplex:
      return "complex" + bits;
    case kBool:
      return "bool";
    default:
      return "DLPack code " + std::to_string(type.code) + " of " + bits + " bits";
  }
}

NumberType named_type(const char* operator_name, const char* name, const std::string& text) {
  for (const NumberType type :
       {number_type<float>(), number_type<double>(), number_type<bfloat16>(), number_type<float16>()}) {
    if (text == type_text(type)) return type;
  }
  reject(operator_name, std::string(name) + " is '" + text + "'; expected float32, float64, bfloat16 or float16");
}

std::string shape_text(const Index* shape, int rank) {
  std::string text = "(";
  for (int i = 0; i < rank; ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

void Array::expect_type(const char* operator_name, const char* name, NumberType type) const {
  if (type_ == type) return;
  std::string what = std::string(name) + " has type " + type_text(type_) + "; expected " + type_text(type);
  if (type == number_type<bool>() && type_.bits == 8) what += " (in NumPy, " + std::string(name) + ".view(bool))";
  reject(operator_name, what);
}

void Array::expect_rank(const char* operator_name, const char* name, int rank) const {
  if (rank_ != rank) reject_rank(operator_name, name, std::to_string(rank));
}

void Array::reject_rank(const char* operator_name, const char* name, const std::string& expected) const {
  reject(operator_name, std::string(name) + " has " + std::to_string(rank_) + (rank_ == 1 ? " axis" : " axes") +
                            " in shape " + shape_text(shape_, rank_) + "; expected " + expected);
}

void Array::complete(int rank, int missing) {
  if (rank_ + missing != rank) return;
  std::move_backward(shape_, shape_ + rank_, shape_ + rank);
  std::move_backward(strides_, strides_ + rank_, strides_ + rank);
  std::fill_n(shape_, missing, 1);
  std::fill_n(strides_, missing, 0);
  rank_ = rank;
}

int complete_to_rank_4(const char* operator_name, Array& query, Array& key, Array* value) {
  const int rank = query.rank();
  if (rank < 2 || rank > 4) query.reject_rank(operator_name, "query", "2 to 4");
  if (value != nullptr && key.rank() == value->rank() && key.rank() != rank && key.rank() >= 2 && key.rank() <= 4)
    query.reject_rank(operator_name, "query", std::to_string(key.rank()) + ", as in key and value");
  const auto check = [&](const Array& array, const char* name) {
    if (array.rank() != rank) array.reject_rank(operator_name, name, std::to_string(rank) + ", as in query");
  };
  check(key, "key");
  if (value != nullptr) check(*value, "value");
  for (Array* const array : {&query, &key, value}) {
    if (array != nullptr) array->complete(4, 4 - rank);
  }
  return 4 - rank;
}

std::size_t Array::num_contiguous(const char* operator_name, const char* name) const {
  Index step = 1;
  for (int i = rank_; i-- > 0; step *= shape_[i]) {
    if (empty() || shape_[i] == 1 || strides_[i] == step) continue;
    reject(operator_name, std::string(name) + " has strides " + shape_text(strides_, rank_) + " in shape " +
                              shape_text(shape_, rank_) + "; expected a contiguous array");
  }
  return static_cast<std::size_t>(step);
}

ElementType Array::any_type(const char* operator_name, const char* name) const {
  constexpr auto found = []<class... T>(const NumberType& type) {
    ElementType element{};
    ((type == number_type<T>() ? void(element = kElementType<T>) : void()), ...);
    return element;
  };
  const ElementType element =
      found.operator()<float, double, bool, std::int32_t, std::int64_t, bfloat16, float16, std::int8_t, std::uint8_t,
                       std::int16_t, std::uint16_t, std::uint32_t, std::uint64_t>(type_);
  if (element == ElementType{}) {
    reject(operator_name, std::string(name) + " has type " + type_text(type_) +
                              "; expected an integer or floating-point type, or bool");
  }
  return element;
}

ElementType Array::element_type(const char* operator_name, const char* name, bool computed_in_double) const {
  if (computed_in_double) {
    expect_type(operator_name, name, number_type<double>());
    return ElementType::float64;
  }
  if (type_ == number_type<float>()) return ElementType::float32;
  if (type_ == number_type<bfloat16>()) return ElementType::bfloat16;
  if (type_ == number_type<float16>()) return ElementType::float16;
  reject(operator_name,
         std::string(name) + " has type " + type_text(type_) +
             "; expected float32, bfloat16 or float16, because query is not float64; convert one of them, "
             "for example by .astype(\"float32\")");
}

void Array::borrow(const char* operator_name, const char* name, nb::handle given, Access access) {
  given_ = true;
  if (is_negative(given.ptr())) {
    reject(operator_name, std::string(name) +
                              " has PyTorch's negative bit set, so reading it would require a copy; "
                              "expected a tensor without it: .resolve_neg()");
  }
  if (borrow_exchange(operator_name, name, given.ptr())) return;
  if (!borrow_buffer(operator_name, name, given.ptr()) && !borrow_capsule(operator_name, name, given.ptr()) &&
      !borrow_extended(operator_name, name, given.ptr())) {
    borrow_dlpack(operator_name, name, given.ptr());
  }
  if (access == Access::write && (read_only_ || is_of_module(given.ptr(), "jaxlib"))) {
    reject(operator_name, std::string(name) + " is read-only; expected a writable array");
  }
}

bool Array::borrow_buffer(const char* operator_name, const char* name, PyObject* given) {
  if (!PyObject_CheckBuffer(given)) return false;
  if (is_a(given, "MaskedArray")) {
    raise(PyExc_TypeError, operator_name,
          std::string(name) + " is a masked array, whose mask would be lost; pass its data, and its mask as `mask`");
  }
  if (PyObject_GetBuffer(given, &buffer_, PyBUF_RECORDS_RO) != 0) {
    // NumPy types that the struct module lacks, such as bfloat16, have no format. They are exported in other ways.
    if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError))
      throw nb::python_error();
    PyErr_Clear();
    return false;
  }
  holder_ = Holder::buffer;
  type_ = type_of_format(buffer_.format != nullptr ? buffer_.format : "B", buffer_.itemsize);
  if (type_.bits == 0) {
    reject(operator_name, std::string(name) + " has elements of format '" + buffer_.format +
                              "', which cannot be read in place; expected numbers in native byte order");
  }
  rank_ = buffer_.ndim;
  if (rank_ > kMaxAxes) {
    reject(operator_name, std::string(name) + " has " + std::to_string(rank_) + " axes; expected at most 8");
  }
  data_ = buffer_.buf;
  read_only_ = buffer_.readonly != 0;
  for (int i = 0; i < rank_; ++i) {
    shape_[i] = buffer_.shape[i];
    if (buffer_.strides[i] % buffer_.itemsize != 0 && shape_[i] > 1) {
      reject(operator_name, std::string(name) + " has a stride of " + std::to_string(buffer_.strides[i]) +
                                " bytes for elements of " + std::to_string(buffer_.itemsize) +
                                ", which would need a copy; expected a multiple");
    }
    strides_[i] = buffer_.strides[i] / buffer_.itemsize;
  }
  return true;
}

// NumPy arrays of bfloat16 as defined by the package ml_dtypes: the same memory, viewed as uint16.
bool Array::borrow_extended(const char* operator_name, const char* name, PyObject* given) {
  if (!is_a(given, "numpy.ndarray")) return false;
  const nb::handle array(given);
  const std::string type = nb::cast<std::string>(nb::str(array.attr("dtype").attr("name")));
  if (type != "bfloat16") {
    raise(PyExc_TypeError, operator_name,
          std::string(name) + " has type " + type + "; expected float32, float64, bfloat16 or float16");
  }
  const nb::object bits = array.attr("view")("uint16");
  if (!borrow_buffer(operator_name, name, bits.ptr())) throw nb::python_error();
  type_ = number_type<bfloat16>();
  return true;
}

void Array::borrow_dlpack(const char* operator_name, const char* name, PyObject* given) {
  const nb::handle producer(given);
  if (!nb::hasattr(producer, "__dlpack__")) {
    reject_type(operator_name, name, given, "an array with the buffer protocol or __dlpack__ (NumPy, PyTorch, JAX …)");
  }
  nb::object capsule;
  try {
    nb::dict keywords;
    keywords["max_version"] = nb::make_tuple(dlpack::kMajor, 1);
    keywords["copy"] = false;
    capsule = producer.attr("__dlpack__")(**keywords);
  } catch (nb::python_error& error) {
    if (error.matches(PyExc_BufferError)) {
      std::string why = nb::cast<std::string>(nb::str(error.value()));
      if (nb::object learns = nb::getattr(producer, "requires_grad", nb::none());
          nb::isinstance<nb::bool_>(learns) && nb::cast<bool>(learns))
        why += "; the functions of regard.torch compute gradients";
      raise(PyExc_BufferError, operator_name, std::string(name) + ": " + why);
    }
    if (!error.matches(PyExc_TypeError)) throw;
  }
  // Producers older than version 1 accept no keyword.
  if (!capsule.is_valid()) capsule = producer.attr("__dlpack__")();
  if (!borrow_capsule(operator_name, name, capsule.ptr())) {
    raise(PyExc_BufferError, operator_name, std::string(name) + ": __dlpack__ returned no capsule");
  }
}

bool Array::borrow_capsule(const char* operator_name, const char* name, PyObject* capsule) {
  if (!PyCapsule_CheckExact(capsule)) return false;
  const auto fail = [&](const std::string& what) {
    raise(PyExc_BufferError, operator_name, std::string(name) + ": " + what);
  };
  const bool versioned = PyCapsule_IsValid(capsule, "dltensor_versioned") != 0;
  if (!versioned && PyCapsule_IsValid(capsule, "dltensor") == 0) {
    const char* const capsule_name = PyCapsule_GetName(capsule);
    PyErr_Clear();
    fail(std::string("the capsule is named ") + (capsule_name != nullptr ? capsule_name : "nothing") +
         "; expected an unused dltensor or dltensor_versioned");
  }
  void* const managed = PyCapsule_GetPointer(capsule, versioned ? "dltensor_versioned" : "dltensor");
  read_managed(operator_name, name, managed, versioned);
  if (PyCapsule_SetName(capsule, versioned ? "used_dltensor_versioned" : "used_dltensor") != 0)
    throw nb::python_error();
  managed_ = managed;
  holder_ = versioned ? Holder::dlpack_versioned : Holder::dlpack;
  return true;
}

// Tensors that __dlpack__ rejects are passed to it, because its error message states the reason.
bool Array::borrow_exchange(const char* operator_name, const char* name, PyObject* given) {
  const dlpack::Exchange* const exchange = exchange_of(Py_TYPE(given));
  if (exchange == nullptr) return false;
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  const nb::object learns = nb::steal(PyObject_GetAttr(given, requires_grad));
  dlpack::ManagedVersioned* managed = nullptr;
  if (learns.ptr() != Py_False || exchange->from_object(given, &managed) != 0) {
    PyErr_Clear();
    return false;
  }
  managed_ = managed;
  holder_ = Holder::dlpack_versioned;
  read_managed(operator_name, name, managed, true);
  return true;
}

void Array::read_managed(const char* operator_name, const char* name, void* managed, bool versioned) {
  const auto fail = [&](const std::string& what) {
    raise(PyExc_BufferError, operator_name, std::string(name) + ": " + what);
  };
  if (versioned) {
    const auto& head = *static_cast<const dlpack::ManagedVersioned*>(managed);
    if (head.major != dlpack::kMajor) {
      fail("DLPack version " + std::to_string(head.major) + "." + std::to_string(head.minor) + "; expected 1");
    }
    read_only_ = (head.flags & dlpack::kReadOnly) != 0;
  }
  const dlpack::Tensor& tensor = versioned ? static_cast<const dlpack::ManagedVersioned*>(managed)->tensor
                                           : static_cast<const dlpack::Managed*>(managed)->tensor;
  if (tensor.device_type != dlpack::kCpu && tensor.device_type != dlpack::kCudaHost) {
    fail("its memory is on a device of DLPack type " + std::to_string(tensor.device_type) +
         "; expected CPU memory (in PyTorch, .cpu())");
  }
  if (tensor.type_lanes != 1) fail("elements of " + std::to_string(tensor.type_lanes) + " lanes; expected 1");
  if (tensor.rank < 0 || tensor.rank > kMaxAxes || (tensor.rank > 0 && tensor.shape == nullptr)) {
    fail(std::to_string(tensor.rank) + " axes" + (tensor.shape == nullptr ? " without a shape" : "") +
         "; expected at most 8");
  }
  bool empty = false;
  for (int i = 0; i < tensor.rank; ++i) {
    shape_[i] = tensor.shape[i];
    empty = empty || shape_[i] == 0;
  }
  if (std::any_of(shape_, shape_ + tensor.rank, [](Index extent) { return extent < 0; })) {
    fail("a negative extent in shape " + shape_text(shape_, tensor.rank));
  }
  if (tensor.data == nullptr && !empty) fail("no memory for shape " + shape_text(shape_, tensor.rank));
  rank_ = tensor.rank;
  type_ = {tensor.type_code, tensor.type_bits};
  data_ = tensor.data == nullptr ? nowhere : static_cast<char*>(tensor.data) + tensor.byte_offset;
  Index step = 1;
  for (int i = rank_; i-- > 0;) {
    strides_[i] = tensor.strides != nullptr ? tensor.strides[i] : step;
    step = static_cast<Index>(static_cast<std::uint64_t>(step) * static_cast<std::uint64_t>(shape_[i]));
  }
}

void Array::release() {
  switch (holder_) {
    case Holder::nothing:
      break;
    case Holder::buffer:
      PyBuffer_Release(&buffer_);
      break;
    case Holder::dlpack: {
      auto* const managed = static_cast<dlpack::Managed*>(managed_);
      if (managed->deleter != nullptr) managed->deleter(managed);
      break;
    }
    case Holder::dlpack_versioned: {
      auto* const managed = static_cast<dlpack::ManagedVersioned*>(managed_);
      if (managed->deleter != nullptr) managed->deleter(managed);
      break;
    }
  }
  holder_ = Holder::nothing;
}

}  // namespace regard::python
