"""Constructors in C for dataclasses with slots: an event or a message is made for each batch, and each batch needs forty of them.

A class asks its metaclass how to be called; ``type`` looks for a vectorcall function first, and that is put there. Whatever is out of the
ordinary (keywords, a wrong number of arguments) goes the usual way.
"""

cdef extern from *:
    """
    #include <stddef.h>
    #if PY_VERSION_HEX < 0x030C0000
    #include <structmember.h>
    #endif

    enum { QUICK_FIELDS_MAX = 16, QUICK_SLOTS = 256, QUICK_CLASSES_MAX = 128 };

    typedef struct {
        PyTypeObject *type;               /* owned, for ever */
        Py_ssize_t count;
        Py_ssize_t required;
        Py_ssize_t offsets[QUICK_FIELDS_MAX];
        PyObject *defaults[QUICK_FIELDS_MAX];  /* owned; NULL where there is none */
    } quick_class;

    static quick_class quick_classes[QUICK_SLOTS];  /* by address; never full */
    static int quick_count;

    static size_t quick_slot(PyTypeObject *type) {
        size_t slot = ((size_t)type >> 5) % QUICK_SLOTS;
        while (quick_classes[slot].type != NULL && quick_classes[slot].type != type)
            slot = (slot + 1) % QUICK_SLOTS;
        return slot;
    }

    static PyObject *quick_usual(PyObject *type, PyObject *const *args, Py_ssize_t count, PyObject *names) {
        PyObject *result = NULL, *named = NULL;
        PyObject *tuple = PyTuple_New(count);
        if (tuple == NULL)
            return NULL;
        for (Py_ssize_t i = 0; i < count; i++) {
            Py_INCREF(args[i]);
            PyTuple_SET_ITEM(tuple, i, args[i]);
        }
        if (names != NULL) {
            named = PyDict_New();
            if (named == NULL)
                goto done;
            for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++)
                if (PyDict_SetItem(named, PyTuple_GET_ITEM(names, i), args[count + i]) < 0)
                    goto done;
        }
        result = PyType_Type.tp_call(type, tuple, named);
    done:
        Py_DECREF(tuple);
        Py_XDECREF(named);
        return result;
    }

    static PyObject *quick_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names) {
        PyTypeObject *type = (PyTypeObject *)callable;
        const quick_class *c = &quick_classes[quick_slot(type)];
        Py_ssize_t count = PyVectorcall_NARGS(flags), i = 0;
        if (names != NULL || c->type == NULL || count > c->count || count < c->required)
            return quick_usual(callable, args, count, names);
        PyObject *made = type->tp_alloc(type, 0);
        if (made == NULL)
            return NULL;
        for (; i < count; i++) {
            Py_INCREF(args[i]);
            *(PyObject **)((char *)made + c->offsets[i]) = args[i];
        }
        for (; i < c->count; i++) {
            Py_INCREF(c->defaults[i]);
            *(PyObject **)((char *)made + c->offsets[i]) = c->defaults[i];
        }
        return made;
    }

    /* The place of a slot in an object; -1: it is none. */
    static Py_ssize_t quick_offset(PyObject *descriptor) {
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type))
            return -1;
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }

    static int quick_install(PyObject *cls, PyObject *descriptors, PyObject *defaults) {
        PyTypeObject *type = (PyTypeObject *)cls;
        Py_ssize_t count = PyTuple_GET_SIZE(descriptors), required = count - PyTuple_GET_SIZE(defaults);
        quick_class *c = &quick_classes[quick_slot(type)];
        if (c->type != NULL || count > QUICK_FIELDS_MAX || required < 0 || quick_count == QUICK_CLASSES_MAX)
            return -1;
        for (Py_ssize_t i = 0; i < count; i++) {
            c->offsets[i] = quick_offset(PyTuple_GET_ITEM(descriptors, i));
            if (c->offsets[i] < 0)
                return -1;
        }
        for (Py_ssize_t i = required; i < count; i++) {
            c->defaults[i] = PyTuple_GET_ITEM(defaults, i - required);
            Py_INCREF(c->defaults[i]);
        }
        c->count = count;
        c->required = required;
        Py_INCREF(cls);
        c->type = type;
        quick_count++;
        type->tp_vectorcall = quick_call;
        return 0;
    }
    """
    int quick_install(object cls, tuple descriptors, tuple defaults)


def quick(type cls not None):
    """Make calls of ``cls`` cheap; returns it. REQUIRES a dataclass with slots that only takes its fields, each by place or with a plain
    default (TypeError)."""
    import dataclasses  # who calls has it; who only opens a log has not, and it takes long to load

    given = dataclasses.fields(cls)
    plain = "__slots__" in cls.__dict__ and "__dict__" not in cls.__dict__ and not hasattr(cls, "__post_init__")
    for field in given:
        plain = plain and field.init and not field.kw_only and field.default_factory is dataclasses.MISSING
    defaults = tuple([field.default for field in given if field.default is not dataclasses.MISSING])
    if not plain or quick_install(cls, tuple([cls.__dict__.get(field.name) for field in given]), defaults) < 0:
        raise TypeError(f"{cls.__name__} is no plain dataclass with slots")
    return cls
